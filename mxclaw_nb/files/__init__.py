"""The one way to write, lock and read a file: atomic, private, bounded, and never through a surprise."""

from .atomic import make_private_dir, write_atomic
from .errors import FileError
from .folder import Folder
from .json_files import read_json, write_json
from .locks import locked
from .pruning import prune
from .reading import open_regular, read_bounded
from .threads import run_in_thread

__all__ = [
    "FileError",
    "Folder",
    "locked",
    "make_private_dir",
    "open_regular",
    "prune",
    "read_bounded",
    "read_json",
    "run_in_thread",
    "write_atomic",
    "write_json",
]

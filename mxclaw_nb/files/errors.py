"""What this room raises besides the plain OSError of the system call that failed."""

from __future__ import annotations

from mxclaw_nb.protocol import MxclawError


class FileError(MxclawError, OSError):
    """A file is not what it should be: no regular file, too large, locked by another, damaged.

    Also an OSError, so that ``except OSError`` catches everything that can go wrong with a file.
    """

    code = "file_error"

    def __str__(self) -> str:
        return self.message

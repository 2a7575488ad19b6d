"""What write_file and edit_file share: the file as it is now, and replacing it only if it still is that."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ..files import Folder
from ..protocol import CallPreview, ToolFailure
from ..workspace import Place, Workspace

LARGEST = 32 << 20
"""Bytes of a file that is compared or edited."""

ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Present:
    """A file as it is. ``data`` is None if there is none, or if it is larger than ``LARGEST``.

    ``fingerprint`` changes when the content does.
    """

    data: bytes | None
    fingerprint: str
    size: int = 0

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.fingerprint != ABSENT


def present(workspace: Workspace, place: Place) -> Present:
    """The file that is at the place now. Raises ToolFailure if something is there that cannot be changed."""
    if not place.exists:
        return Present(None, ABSENT)
    refuse_open_notebook(place)
    if place.path.is_dir():
        raise ToolFailure(f"{place.shown} is a folder, not a file.")
    with workspace.open_parent(place) as folder:
        return _look(workspace, place, folder)


def _look(workspace: Workspace, place: Place, folder: Folder) -> Present:
    try:
        if folder.stat(place.path.name) is None:
            return Present(None, ABSENT)
    except OSError as error:
        raise ToolFailure(f"{place.shown} cannot be reached: {error.strerror or error}.") from None
    descriptor = workspace.open_file(place)
    try:
        found = os.fstat(descriptor)
        if not stat.S_IMODE(found.st_mode) & 0o222:
            raise ToolFailure(
                f"{place.shown} is read-only (mode {stat.S_IMODE(found.st_mode):04o}), so it was not changed. Change "
                "its mode first if it should be edited."
            )
        if found.st_size > LARGEST:
            key = f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
            return Present(None, f"stat:{key}", found.st_size)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(LARGEST + 1)
        return Present(data, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
    except OSError as error:
        raise ToolFailure(f"{place.shown} cannot be read: {error.strerror or error}.") from None
    finally:
        os.close(descriptor)


def replace_file(workspace: Workspace, place: Place, data: bytes, fingerprint: str) -> None:
    """Write ``data`` at one stroke if the file's fingerprint still is this one; then read it back.

    Folders above are made; mode and owner of a file that is there are kept, a new one has the umask's mode.
    Raises ToolFailure; then nothing was changed (unless the sentence says otherwise).
    """
    with workspace.open_parent(place, create=True) as folder:
        if _look(workspace, place, folder).fingerprint != fingerprint:
            raise _moved_on(place)
        try:
            folder.replace(place.path.name, data, mode=None, keep_mode=True)
        except OSError as error:
            raise ToolFailure(f"{place.shown} was not changed: {error.strerror or error}.") from None
        if _look(workspace, place, folder).data not in (data, None):
            raise ToolFailure(f"{place.shown} was written, but something else changed it at once. Read it again.")


def check_still_judged(place: Place, current: Present, preview: CallPreview) -> None:
    """Raise ToolFailure if the path leads elsewhere, or the file is another, than in the preview that was approved."""
    if preview.targets and preview.targets[0].path != place.path:
        raise ToolFailure(f"{place.shown} is not where the path led before; nothing was done. Look again.")
    if preview.targets and place.protected and not preview.targets[0].protected:
        raise ToolFailure(f"{place.shown} is protected; nothing was done.", status="denied")
    if preview.fingerprint is not None and preview.fingerprint != current.fingerprint:
        raise _moved_on(place)


def refuse_open_notebook(place: Place) -> None:
    """Raise ToolFailure for the notebook that this very kernel belongs to: its editor holds another state of it."""
    own = os.environ.get("JPY_SESSION_NAME", "")
    if own and place.path.suffix.lower() == ".ipynb" and _same_file(place.path, own):
        raise ToolFailure(
            f"{place.shown} is the notebook that is open right now; changing the file behind its editor would damage "
            "it. Show the user what to put into a cell instead.",
            status="denied",
        )


def _same_file(path: Path, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _moved_on(place: Place) -> ToolFailure:
    return ToolFailure(
        f"{place.shown} has changed since the change was shown; nothing was done. Read it again and repeat the call."
    )

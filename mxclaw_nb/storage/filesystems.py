"""Which file system a path lies on, and whether SQLite's write-ahead log works there.

WAL needs memory shared between all processes that open the database, and file locks that work: network file
systems and most file systems in user space promise neither.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# fmt: off
_NO_SHARED_MEMORY = frozenset({
    "9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "davfs2", "fhgfs", "gfs", "gfs2", "glusterfs",
    "gpfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "osxfuse", "macfuse", "panfs", "prl_fs",
    "pvfs2", "shfs", "smb", "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "virtiofs", "vmhgfs", "vzfs", "webdav",
})
# fmt: on
_OCTAL = re.compile(r"\\([0-7]{3})")
_MOUNT_LINE = re.compile(r"^.* on (?P<point>/.*) \((?P<type>[^,)]+)")


def file_system_of(path: str, mountinfo: str) -> str | None:
    """The type of the file system that ``path`` (absolute, resolved) lies on, by the text of a mountinfo file.

    The longest mount point that is a prefix of the path wins, the last such line if it was mounted over. None if
    the text names none.
    """
    best, kind = -1, None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5 or not rest[0]:
            continue
        length = _covers(_unescaped(fields[4]), path)
        if length >= best and length >= 0:
            best, kind = length, _unescaped(rest[0])
    return kind


def file_system_in_mount_output(path: str, output: str) -> str | None:
    """As ``file_system_of``, by what macOS's ``mount`` prints: ``host:/share on /Volumes/x (nfs, nodev)``."""
    best, kind = -1, None
    for line in output.splitlines():
        match = _MOUNT_LINE.match(line)
        length = _covers(match["point"], path) if match else -1
        if match and length >= best and length >= 0:
            best, kind = length, match["type"].strip()
    return kind


def _unescaped(field: str) -> str:
    """The kernel writes spaces, tabs, newlines and backslashes as octal numbers of their bytes."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8) & 0x7F), field)


def _covers(point: str, path: str) -> int:
    """The length of the mount point if the path lies in it, else -1."""
    if point == "/":
        return 0 if path.startswith("/") else -1
    return len(point) if path == point or path.startswith(point.rstrip("/") + "/") else -1


def supports_wal(file_system: str | None) -> bool:
    """False for file systems on which a write-ahead log would lose or damage data; an unknown one is trusted."""
    if file_system is None:
        return True
    kind = file_system.lower()
    return kind not in _NO_SHARED_MEMORY and not kind.startswith(("fuse", "nfs", "smb", "cifs", "9p"))


def current_file_system(path: Path) -> str | None:
    """The type of the file system that ``path`` lies on right now; None where it cannot be told."""
    resolved = str(path.resolve())
    try:
        if sys.platform == "darwin":
            listing = subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=2, check=False)
            return file_system_in_mount_output(resolved, listing.stdout)
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return file_system_of(resolved, text)

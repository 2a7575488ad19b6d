"""Paths that are asked about each time, even where edits are accepted: what runs by itself, and what holds secrets.

- version control internals (hooks and configuration run programs) and our own, editors', agents' and Jupyter's
  configuration folders, which are read without asking when something starts;
- files that a shell, git, Python, conda or direnv runs or obeys when it starts, hooks managers, ``.mcp.json``;
- ``.env`` files and the usual credential files;
- notebooks, since one may be open in an editor, which a change behind its back would corrupt.

Names are compared without regard to case and Unicode form, so that no spelling slips through. Reading them is not
restricted by this list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from .names import plain_name

_FOLDERS = frozenset({
    ".git", "git~1", ".hg", ".svn", ".mx-claw", ".vscode", ".idea", ".jupyter", ".ipython", ".ssh", ".gnupg", ".aws",
    ".azure", ".kube", ".docker", ".claude", ".codex", ".cursor", ".gemini", ".husky", ".devcontainer",
})  # fmt: skip
_CONFIG_FOLDERS = frozenset({"git", "fish", "autostart", "systemd", "gcloud", "gh", "pip", "matplotlib", "direnv"})
_FILES = frozenset({
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".xprofile",
    ".xinitrc", ".xsession", ".vimrc", ".exrc", ".emacs", ".gitconfig", ".gitmodules", ".mcp.json", ".envrc", ".netrc",
    "_netrc", ".pgpass", ".pypirc", ".npmrc", ".yarnrc", ".git-credentials", ".condarc", ".pdbrc", ".gdbinit",
    ".lldbinit", ".pythonstartup", ".pre-commit-config.yaml", "sitecustomize.py", "usercustomize.py",
    "ipython_config.py", "ipython_kernel_config.py", "authorized_keys", "id_rsa", "id_ed25519", "id_ecdsa",
})  # fmt: skip
_PATTERNS = (
    re.compile(r"\.env(\..+)?"),
    re.compile(r"jupyter_.*config\.(py|json)"),
    re.compile(r".*\.pth"),
    re.compile(r".*\.ipynb"),
)


def is_protected(parts: Sequence[str]) -> bool:
    """Whether the path with these parts, below the workspace's root, is to be asked about each time."""
    plain = [plain_name(part) for part in parts]
    if any(part in _FOLDERS for part in plain):
        return True
    if any(first == ".config" and second in _CONFIG_FOLDERS for first, second in pairwise(plain)):
        return True
    last = plain[-1] if plain else ""
    return last in _FILES or any(pattern.fullmatch(last) for pattern in _PATTERNS)

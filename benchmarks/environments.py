"""The peers' environments: one each, made once under ``.cache/bench`` from pinned versions (``peers/NAME.txt``)."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
PINS = Path(__file__).with_name("peers")
OURS = Path(sys.executable)


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment; makes the environment if it is missing or its pins have changed."""
    pins = PINS / f"{peer}.txt"
    expected = f"{platform.python_version()}\n{pins.read_text(encoding='utf-8')}"
    folder = CACHE / peer
    python = folder / "env" / "bin" / "python"
    stamp = folder / "stamp"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == expected:
        return python
    print(f"  making the environment of {peer} ...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "env")], check=True)
    install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-r", str(pins)]
    subprocess.run(install, check=True)
    stamp.write_text(expected, encoding="utf-8")
    return python


def version_of(peer: str, package: str) -> str:
    """The pinned version of a package in a peer's environment, or ``?``."""
    for line in (PINS / f"{peer}.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if name.lower().replace("_", "-") == package.lower().replace("_", "-"):
            return version
    return "?"

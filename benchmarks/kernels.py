"""How long ``%load_ext`` takes in a running kernel, measured inside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

_CODE = """
import time as _t
_shell = get_ipython()
_c, _w = _t.process_time(), _t.perf_counter()
_shell.run_line_magic("load_ext", "{extension}")
print("took", _t.process_time() - _c, _t.perf_counter() - _w, flush=True)
"""


def load_extension(python: Path, extension: str, home: Path) -> dict[str, float]:
    """CPU and wall seconds of ``%load_ext`` in a fresh kernel that has run a cell before."""
    manager = KernelManager(kernel_name="")
    manager._kernel_spec = _spec(python)
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "LANG": "C.UTF-8"}
    environment |= {"MX_CLAW_HOME": str(home / "mx"), "IPYTHONDIR": str(home / "ipython"), "PYTHONPATH": ""}
    manager.start_kernel(env=environment, cwd=str(home), stderr=subprocess.DEVNULL)
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        _execute(client, "1 + 1")
        words = _execute(client, _CODE.format(extension=extension)).split()
        took = words.index("took")
        return {"cpu": float(words[took + 1]), "wall": float(words[took + 2])}
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def _spec(python: Path) -> KernelSpec:
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return KernelSpec(argv=argv, display_name="bench", language="python")


def _execute(client, code: str) -> str:
    printed: list[str] = []

    def hook(message: dict) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=90, output_hook=hook, allow_stdin=False)
    if reply["content"]["status"] != "ok":
        raise RuntimeError("the kernel failed: " + "\n".join(reply["content"].get("traceback", [])))
    return "".join(printed)

"""What the room's face costs: nothing that only a request needs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("httpx", "httpcore", "aiohttp", "httpx_aiohttp")


def test_the_face_loads_no_http_library() -> None:
    code = f"import sys, mxclaw_nb.providers; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"

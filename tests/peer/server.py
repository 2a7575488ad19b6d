"""llama.cpp's server as a test sees it: a process with an address, a key and one slot."""

from __future__ import annotations

import secrets
import selectors
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.peer.install import MODEL, SITE

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 10.0
SERVE = Path(__file__).with_name("serve.py")


class LlamaServer:
    """One llama.cpp server, alive between ``start`` and ``stop``; it also ends when this process dies.

    ``endless``: a reply never ends before its bound, which is ``reply_tokens`` where a request names none.
    """

    model = "smollm2"

    def __init__(self, log: Path, *, context_tokens: int, reply_tokens: int, endless: bool = False) -> None:
        self.key = secrets.token_hex(16)
        self._options = ["--context-tokens", str(context_tokens), "--reply-tokens", str(reply_tokens)]
        if endless:
            self._options.append("--endless")
        self.address = ""
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def start(self) -> None:
        """Returns when the model is loaded. Raises AssertionError with the end of the log if that takes too long."""
        command = [sys.executable, str(SERVE), str(SITE), str(MODEL), self.key, *self._options]
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if selector.select(START_TIMEOUT_S):
                self.address = self._process.stdout.readline().strip()
        if not self.address.startswith("http://127.0.0.1:"):
            self.stop()
            raise AssertionError(f"the llama.cpp server did not start: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Close its input, which ends it; kill it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()

    def wait_until_idle(self, timeout_s: float) -> float:
        """Seconds until no slot generates. Raises AssertionError after ``timeout_s``."""
        began = time.monotonic()
        while time.monotonic() - began < timeout_s:
            slots = httpx.get(
                f"{self.address}/slots",
                headers={"Authorization": f"Bearer {self.key}"},
                timeout=timeout_s,
                trust_env=False,
            ).json()
            if not any(slot["is_processing"] for slot in slots):
                return time.monotonic() - began
            time.sleep(0.02)
        raise AssertionError(f"a slot was still busy after {timeout_s} s")

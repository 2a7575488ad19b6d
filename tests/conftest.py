"""What every test gets: a home of its own, an environment without keys, and no thread of ours left behind.

With ``CI`` set a skip is an error: what needs a system package is skipped on a developer's machine with a plain
sentence, and must have run before a change lands.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
KEY_LIKE = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
FOREIGN = re.compile(r"^(MX_CLAW_.*|JPY_.*|JUPYTER.*|IPYTHONDIR|XDG_.*_HOME|(HTTPS?|ALL|NO)_PROXY)$", re.IGNORECASE)
OUR_THREADS = re.compile(r"^mx-?claw", re.IGNORECASE)
THREAD_GRACE_S = 2.0

_home = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Move to a temporary home for the whole run, so that nothing can touch the real one."""
    home = Path(tempfile.mkdtemp(prefix="mxclaw-tests-"))
    config.stash[_home] = home
    for name in list(os.environ):
        if KEY_LIKE.search(name) or FOREIGN.match(name):
            del os.environ[name]
    os.environ["HOME"] = str(home)
    os.environ["MX_CLAW_HOME"] = str(home / "unclaimed")


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_home, None)
    if home is not None:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def mx_claw_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This test's own ``MX_CLAW_HOME`` (not made yet: the product makes it)."""
    home = tmp_path_factory.mktemp("home") / "mx-claw"
    monkeypatch.setenv("MX_CLAW_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def _no_thread_of_ours_is_left(mx_claw_home: Path) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_GRACE_S
    for thread in set(threading.enumerate()) - before:
        if OUR_THREADS.match(thread.name):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                pytest.fail(f"the thread {thread.name!r} is still there {THREAD_GRACE_S:.0f} s after the test")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """An interrupt of the product's own that leaves a test is that test's failure, not the end of the run."""
    try:
        return (yield)
    except KeyboardInterrupt as interrupt:
        if type(interrupt) is KeyboardInterrupt:
            raise
        raise AssertionError(f"the test was left by {type(interrupt).__name__}: {interrupt}") from interrupt


def _skip_is_an_error(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI nothing may be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    _skip_is_an_error(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    _skip_is_an_error(report)
    return report

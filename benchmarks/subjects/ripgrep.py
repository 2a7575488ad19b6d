"""Plain ripgrep as a child of Python: the same pattern in the same tree, its output read whole."""

from __future__ import annotations

import subprocess
import time

from meter import Meter, read_task, report

task = read_task()
meter = Meter()
for warm in (True, *[False] * task.repeats):
    start = time.perf_counter()
    done = subprocess.run(
        ["rg", "--line-number", "--no-heading", "--", task.base_url, "."],
        cwd=task.folder,
        capture_output=True,
        check=True,
    )
    if not warm:
        meter.wall += time.perf_counter() - start
report(meter, lines=done.stdout.count(b"\n"))

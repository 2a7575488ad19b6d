"""Plain ripgrep as a child of Python: the same pattern in the same tree, its output read whole."""

from __future__ import annotations

import subprocess
import time
from statistics import median

from meter import Meter, read_task, report

task = read_task()
command = ["rg", "--line-number", "--no-heading", "--", task.base_url, "."]
took = []
for _ in range(task.repeats + 1):
    start = time.perf_counter()
    done = subprocess.run(command, cwd=task.folder, capture_output=True, check=True)
    took.append(time.perf_counter() - start)
meter = Meter()
meter.wall = median(took[1:])
report(meter, lines=done.stdout.count(b"\n"))

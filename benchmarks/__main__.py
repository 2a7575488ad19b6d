"""``python -m benchmarks [NAME ...] [--repetitions N]``: measure, print, and write the results down."""

from __future__ import annotations

import argparse
import os
import time

from . import report
from .harness import place, run_measure
from .measures import MEASURES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(MEASURES)} (default: all)")
    parser.add_argument("--repetitions", type=int, default=None, help="of each subject")
    parser.add_argument("--no-page", action="store_true", help="leave docs/performance.md as it is")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in MEASURES]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; the names are: {', '.join(MEASURES)}")
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"The machine is not quiet (load {busy:.1f}): the ratios will be wider than they should.")
    started = time.monotonic()
    failed = []
    with place() as here:
        for name in arguments.names or list(MEASURES):
            print(f"{name} ...", flush=True)
            try:
                measure = MEASURES[name](here)
                if measure is None:
                    print("  left out: what it is compared with is not installed")
                    continue
                samples = run_measure(measure, arguments.repetitions)
            except RuntimeError as error:
                print(f"  {error}")
                failed.append(name)
                continue
            rows = report.rows_of(measure, samples)
            report.save(measure, samples, rows)
            for row in (*rows.figures, *rows.bars):
                print("  " + " | ".join(cell for cell in row[1:] if cell), flush=True)
    if not arguments.no_page:
        report.write_page(list(MEASURES))
    print(f"{time.monotonic() - started:.0f} s")
    if failed:
        raise SystemExit(f"could not be measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()

"""The results: JSON under ``.cache/bench`` and the tables of ``docs/performance.md``."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from mxclaw_nb import __version__

from .environments import CACHE, ROOT, version_of
from .harness import Measure, Outcome, Sample, judge

RESULTS = CACHE / "results.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Report:
    """One measure as it goes into the page: rows of the two tables, ready to be joined."""

    bars: list[list[str]]
    figures: list[list[str]]


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them."""
    for factor, unit in ((1e-3, "µs"), (1.0, "ms")):
        if seconds < factor:
            return f"{seconds / factor * 1000:.3g} {unit}"
    return f"{seconds:.3g} s"


def rows_of(measure: Measure, samples: Mapping[str, Sequence[Sample]]) -> Report:
    """The rows of one measure."""
    return Report(
        [_bar_row(measure, judge(bar, samples)) for bar in measure.bars],
        [_figure_row(measure, name, values) for name, values in samples.items()]
        + [[measure.title, note, "", f"{value:.2f}"] for note, value in measure.notes.items()],
    )


def _bar_row(measure: Measure, outcome: Outcome) -> list[str]:
    bar = outcome.bar
    if outcome.peer is None or outcome.theirs is None:
        seen, limit, theirs = (
            f"{duration(outcome.ours)} ({duration(outcome.low)} to {duration(outcome.high)})",
            f"≤ {duration(bar.limit)}",
            "",
        )
    else:
        seen = f"**{outcome.ratio:.3g}** ({outcome.low:.3g} to {outcome.high:.3g})"
        limit, theirs = f"≤ {bar.limit:.3g}", f"{outcome.peer}: {duration(outcome.theirs)}"
    return [measure.title, bar.text, duration(outcome.ours), theirs, seen, limit, "held" if outcome.held else "MISSED"]


def _figure_row(measure: Measure, name: str, samples: Sequence[Sample]) -> list[str]:
    def column(quantity: str) -> str:
        values = [sample[quantity] for sample in samples]
        if not any(values):
            return ""
        return f"{duration(median(values))} ({duration(min(values))} to {duration(max(values))})"

    return [f"{measure.title}, {measure.unit}", name, column("cpu"), column("wall")]


def machine() -> dict[str, str]:
    """What the figures were taken on, without a name of the host."""
    processor = platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    return {
        "cores": str(os.cpu_count()),
        "processor": processor,
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def versions() -> dict[str, str]:
    """The libraries that were measured or carry us."""
    peers = {"openai": "openai", "pydantic-ai-slim": "pydantic-ai", "openai-agents": "openai-agents"}
    peers |= {"langgraph": "langgraph", "langchain-openai": "langgraph", "jupyter_ai_magics": "jupyter-ai-magics"}
    found = {"mxclaw_nb": __version__, "pydantic": version("pydantic"), "ipykernel": version("ipykernel")}
    found |= {package: version_of(peer, package) for package, peer in peers.items()}
    return found | {"httpx2 (the peers')": version_of("openai", "httpx2")}


def save(measure: Measure, samples: Mapping[str, Sequence[Sample]], report: Report) -> None:
    """Keep one measure's samples and rows; those of other measures stay."""
    stored = _stored()
    stored["machine"], stored["versions"] = machine(), versions()
    stored["measures"][measure.name] = {
        "title": measure.title,
        "unit": measure.unit,
        "samples": {name: [dict(sample) for sample in values] for name, values in samples.items()},
        "bars": report.bars,
        "figures": report.figures,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(stored, indent=1, ensure_ascii=False), encoding="utf-8")


def _stored() -> dict:
    if RESULTS.exists():
        return json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"machine": {}, "versions": {}, "measures": {}}


def write_page(order: Sequence[str]) -> None:
    """Put the tables between the markers of ``docs/performance.md``."""
    stored = _stored()
    measures = [stored["measures"][name] for name in order if name in stored["measures"]]
    bars = [row for measure in measures for row in measure["bars"]]
    figures = [row for measure in measures for row in measure["figures"]]
    about, libraries = stored["machine"], stored["versions"]
    machine_line = (
        f"{about['cores']} cores ({about['processor']}), {about['system']}, Python {about['python']}, "
        f"SQLite {about['sqlite']}."
    )
    library_line = ", ".join(f"{name} {number}" for name, number in libraries.items()) + "."
    bar_head = ["What", "Measured", "mxclaw_nb", "Best peer", "Ratio of medians (range)", "Bar", ""]
    parts = [
        BEGIN,
        "",
        machine_line + " " + library_line,
        "",
        table(bar_head, bars),
        "",
        "All medians, with the smallest and the largest of the repetitions:",
        "",
        table(["What, a unit", "Subject", "CPU", "Wall"], figures),
        "",
        END,
    ]
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + "\n".join(parts) + after, encoding="utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

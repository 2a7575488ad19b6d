"""Pictures of a turn in both front ends, light and dark, narrow and wide; nothing overflows, all of it is legible."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mxclaw_nb.providers.rehearsal import call, calls, say, sequence
from tests.end_to_end.agents import ScriptedAgent, scripted, wait_for_question
from tests.end_to_end.conftest import SCREENSHOTS
from tests.end_to_end.harness import FrontendName, JupyterServer, NotebookPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

OpenNotebook = Callable[..., NotebookPage]
__all__ = ["scripted"]

REPLY = """\
## What I changed

The reader now closes its file. **Three** things to know:

1. `report.py` reads with `newline=''`
2. the mean is $\\bar{x} = \\frac{1}{n}\\sum_i x_i$, and it costs $5 or $6
3. see [the docs](https://docs.python.org/3/library/csv.html)

| column | rows |
|---|---|
| name | 120 |
| 价格 | 118 |

```python
with open("data.csv", newline="") as handle:
    rows = list(csv.reader(handle))
```

> Two rows have no price. 两行没有价格。
"""
OVERFLOW = """() => { const box = document.querySelector('.mxc-live') || document.querySelector('.mxc-rec');
                      return box.scrollWidth - box.clientWidth }"""
CONTRAST = """() => {
  const linear = x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4 };
  const luminance = c => { const v = c.map(linear);
                           return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };
  const parse = s => { const n = (s.match(/[\\d.]+/g) || []).map(Number);
                       return s.startsWith('color(') ? n.map((x, i) => i < 3 ? x * 255 : x) : n };
  const over = (top, under) => { const a = top.length > 3 ? top[3] : 1;
                                 return [0, 1, 2].map(i => top[i] * a + under[i] * (1 - a)) };
  const ground = e => { const layers = []; for (let x = e; x; x = x.parentElement) {
      const c = parse(getComputedStyle(x).backgroundColor);
      if (c.length && !(c.length > 3 && c[3] === 0)) layers.push(c) }
      return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]) };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('.mxc-rec :is(span, b, p, code, td, li):not(.mxc-i)')) {
      if (!e.innerText.trim() || e.closest('mjx-container') || e.closest('.mxc-sr') || !e.offsetParent) continue;
      const back = ground(e), front = over(parse(getComputedStyle(e).color), back);
      const [a, b] = [luminance(front), luminance(back)].sort((x, y) => y - x);
      const ratio = (a + .05) / (b + .05); if (ratio < worst[0]) worst = [ratio, e.innerText.slice(0, 40)] }
  return worst }"""


BROKEN_WORDS = """i => {
  const table = document.querySelectorAll('.jp-CodeCell')[i].querySelector('.jp-Cell-outputWrapper table');
  const walker = document.createTreeWalker(table, NodeFilter.SHOW_TEXT), broken = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode())
      for (const word of node.data.matchAll(/\\w+/g)) {
          const range = document.createRange();
          range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
          if (range.getClientRects().length > 1) broken.push(word[0]) }
  return broken }"""
TABLE_OVERFLOW = """i => {
  const out = document.querySelectorAll('.jp-CodeCell')[i].querySelector('.jp-OutputArea-output');
  const table = out.querySelector('table');
  return [out.scrollWidth - out.clientWidth, table.scrollWidth - table.clientWidth] }"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tables_of_commands_are_whole_on_a_narrow_page(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, frontend: FrontendName, theme: str
) -> None:
    agent = scripted(sequence(say("Hello.")))
    title = "A longer title of a session about prices 价格"
    lines = ["settings", "doctor", "session list", ""]
    page = open_notebook([agent.setup, f"%mxclaw session new {title}", *(f"%mxclaw {line}" for line in lines)])
    page.run_all().wait()
    if frontend == "lab":
        page.command("application:toggle-left-area")
    page.theme(theme)  # type: ignore[arg-type]
    for width in (400, 620):
        page.resize(width, 800)
        for index, line in enumerate(lines, 2):
            page.scroll_to(index)
            name = line.replace(" ", "-") or "where"
            page.screenshot(SCREENSHOTS / f"{frontend}-table-{name}-{theme}-{width}.png")
            assert page.evaluate(BROKEN_WORDS, index) == [], f"%mxclaw {line} at {width} pixels"
            outside, inside = page.evaluate(TABLE_OVERFLOW, index)
            assert outside <= 1, f"%mxclaw {line} does not scroll in its own box at {width} pixels"
            assert inside > 0 or width > 400, "the narrow page is too wide to show anything"


def test_the_looks(
    open_notebook: OpenNotebook, scripted: ScriptedAgent, server: JupyterServer, frontend: FrontendName
) -> None:
    (server.root / "report.py").write_text("import csv\nrows = list(csv.reader(open('data.csv')))\nprint(len(rows))\n")
    edit = call(
        "edit_file",
        path="report.py",
        old="rows = list(csv.reader(open('data.csv')))",
        new="with open('data.csv', newline='') as handle:\n    rows = list(csv.reader(handle))",
    )
    agent = scripted(
        sequence(
            calls(
                call("list_dir", path="."), call("read_file", path="missing.csv"), text="I look at the folder first."
            ),
            edit.saying("Now I mend the reader."),
            call("run_command", command="printf 'a\\nb\\n'; echo done \u202e"),
            say(REPLY),
        )
    )
    page = open_notebook([agent.setup, "%mxclaw", "%%agent\nFix the reader and say what you did."])
    page.execute(0)
    page.execute(1)
    run = page.run_cell(2)

    def look(name: str) -> None:
        for theme in ("light", "dark"):
            page.theme(theme)  # type: ignore[arg-type]
            page.resize(1200, 1000)
            page.scroll_to(2)
            page.screenshot(SCREENSHOTS / f"{frontend}-{name}-{theme}.png")
        page.theme("light")
        for width in (400, 1800):
            page.resize(width, 1000)
            page.scroll_to(2)
            page.screenshot(SCREENSHOTS / f"{frontend}-{name}-{width}.png")
            assert float(page.evaluate(OVERFLOW)) <= 1, f"{name} overflows at {width} pixels"
        page.resize(1200, 1000)

    if frontend == "lab":
        page.command("application:toggle-left-area")
    wait_for_question(page, "edit_file")
    look("edit")
    page.click("Allow once")
    wait_for_question(page, "run_command")
    assert "U+202E" in page.output_text(2)
    look("command")
    page.click("Allow once")
    run.wait()
    page.wait_for_text("What I changed", cell=2)
    look("record")
    for theme in ("light", "dark"):
        page.theme(theme)  # type: ignore[arg-type]
        ratio, where = page.evaluate(CONTRAST)
        assert ratio >= 4.5, f"{where!r} has a contrast of {ratio:.1f} in the {theme} theme"
    page.theme("light")

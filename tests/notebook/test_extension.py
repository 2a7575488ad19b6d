"""What %load_ext puts into a shell, and that a cell's text reaches the turn byte for byte."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from mxclaw_nb import load_ipython_extension, unload_ipython_extension
from mxclaw_nb.notebook.extension import split_cell

BODIES = [
    "plain",
    "braces {x} {{y}} $HOME ${z}",
    "quotes ' \" ''' \"\"\" and \\ \\n \\N{BULLET} \\u0041",
    ">>> print(1)\n... x",
    "In [1]: x\n   ...: y",
    "!rm -rf {x}\n?help\nx?\n%time\n%%bash\n/f x",
    "tabs\tand trailing spaces   \n   \n\n  ",
    "    indented\n  less",
    "C:\\temp\\new\\table.csv",
    "价格 — ünïcödé 🚀 \u202e \u2028 \x0b \x0c \x85 \x1c",
    "a\r\nb\rc",
    "\x00\x1b[31m",
    "# a comment\nawait x; x = 1",
    "%%agent\nnested",
    "\n\nblank lines first",
]


def bare_shell() -> InteractiveShell:
    """A shell that keeps no history on disk."""
    return InteractiveShell(config=Config({"HistoryManager": {"enabled": False, "hist_file": ":memory:"}}))


@pytest.fixture
def shell() -> InteractiveShell:
    shell = bare_shell()
    load_ipython_extension(shell)
    return shell


def sent(shell: InteractiveShell, cell: str) -> tuple[str, str, str]:
    """The function and the two strings in what IPython will execute."""
    tree = ast.parse(shell.transform_cell(cell), mode="exec")
    assert len(tree.body) == 1
    statement = tree.body[0]
    assert isinstance(statement, ast.Expr)
    value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    assert isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    line, body = map(ast.literal_eval, value.args)
    return value.func.attr, line, body


@pytest.mark.parametrize("body", BODIES)
def test_the_body_arrives_byte_for_byte(shell: InteractiveShell, body: str) -> None:
    assert sent(shell, f"%%agent --new\n{body}") == ("agent_cell", "--new", body)


@given(st.text(max_size=200).filter(lambda text: not text.endswith("\n")))
def test_any_body_arrives_byte_for_byte(body: str) -> None:
    lines = f"%%agent\n{body}\n"
    assert split_cell(lines) == ("", body)


@pytest.mark.parametrize(
    "cell", ["%%agent\nx", "\n\n%%agent\nx", "   \n%%agent\nx", "  %%agent\nx", "%%agent  \nx", "\t\n \r\n%%agent\r\nx"]
)
def test_blank_lines_before_and_spaces_around_do_not_matter(shell: InteractiveShell, cell: str) -> None:
    assert sent(shell, cell)[1:] == ("", "x")


@pytest.mark.parametrize("cell", ["%%agents\nx", "%%agent?", "x = 1\n%%agent\ny", "# %%agent", "print('%%agent')", ""])
def test_other_cells_are_left_alone(shell: InteractiveShell, cell: str) -> None:
    bare = bare_shell()
    assert shell.transform_cell(cell) == bare.transform_cell(cell)


@pytest.mark.parametrize("cell", ["%%agent", "%%agent\n", "%%agent --to x\n  \n"])
def test_an_empty_body_still_reaches_us_to_be_explained(shell: InteractiveShell, cell: str) -> None:
    assert sent(shell, cell)[2].strip() == ""


def test_without_autoawait_the_cell_is_a_plain_call(shell: InteractiveShell) -> None:
    shell.autoawait = False
    assert sent(shell, "%%agent\n{x}")[0] == "agent_cell_sync"


def test_with_another_async_library_the_cell_is_a_plain_call(shell: InteractiveShell) -> None:
    from IPython.core.async_helpers import _pseudo_sync_runner

    shell.loop_runner = _pseudo_sync_runner
    assert sent(shell, "%%agent\n{x}")[0] == "agent_cell_sync"


def test_a_terminal_waits_for_a_body(shell: InteractiveShell) -> None:
    manager = shell.input_transformer_manager
    assert manager.check_complete("%%agent\n")[0] == "incomplete"
    assert manager.check_complete("%%agent\nhello")[0] == "incomplete"
    assert manager.check_complete("%%agent\nhello\n\n")[0] == "complete"


def test_loading_twice_changes_nothing_and_unloading_leaves_nothing() -> None:
    shell = bare_shell()

    def hooks() -> tuple[object, ...]:
        magics = shell.magics_manager.magics
        completer = shell.Completer
        return (
            list(shell.input_transformers_cleanup),
            set(magics["line"]),
            set(magics["cell"]),
            list(completer.custom_matchers) if completer else [],
            set(shell.user_ns),
        )

    before = hooks()
    load_ipython_extension(shell)
    once = hooks()
    load_ipython_extension(shell)
    assert hooks() == once != before
    unload_ipython_extension(shell)
    assert hooks() == before
    unload_ipython_extension(shell)
    assert hooks() == before


def test_the_transformer_comes_first(shell: InteractiveShell) -> None:
    assert type(shell.input_transformers_cleanup[0]).__name__ == "AgentCells"


def test_the_magics_explain_themselves(shell: InteractiveShell) -> None:
    assert "--to" in (shell.find_cell_magic("agent").__doc__ or "")
    assert shell.find_line_magic("mxclaw").__doc__


def test_loading_brings_in_nothing_heavy() -> None:
    """In a fresh interpreter that has IPython: only our own light modules come on top."""
    script = """
import sys
from IPython.core.interactiveshell import InteractiveShell
import IPython.core.completer, IPython.core.magic
shell = InteractiveShell()
before = set(sys.modules)
import mxclaw_nb
mxclaw_nb.load_ipython_extension(shell)
new = sorted(set(sys.modules) - before)
print(' '.join(name for name in new if not name.startswith('mxclaw_nb')))
print(' '.join(new))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    foreign, ours = done.stdout.splitlines()
    assert foreign == ""
    assert set(ours.split()) == {"mxclaw_nb", "mxclaw_nb.notebook", "mxclaw_nb.notebook.extension"}


def test_our_face_is_small() -> None:
    import mxclaw_nb
    import mxclaw_nb.notebook

    assert mxclaw_nb.__all__ == ["__version__", "load_ipython_extension", "unload_ipython_extension"]
    assert mxclaw_nb.notebook.__all__ == ["agent_cell", "agent_cell_sync", "load", "unload"]

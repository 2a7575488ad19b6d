"""The permission table, row by row, and what stands above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxclaw_nb.permissions import decide
from mxclaw_nb.protocol import MODES, CallPreview, Decision, Mode, PermissionQuery, Risk, Target, Verdict

HOME = "/home/u/.mx-claw"


def ask(
    tool: str,
    risk: Risk,
    mode: Mode = "ask",
    *,
    command: str | None = None,
    path: str = "/ws/a.py",
    protected: bool = False,
    deny: tuple[str, ...] = (),
    allows: frozenset[str] = frozenset(),
) -> Verdict:
    targets = () if command is not None else (Target(Path(path), protected),)
    preview = CallPreview("summary", targets=targets, command=command)
    return decide(PermissionQuery(tool, risk, mode, preview, HOME, deny, allows))


TABLE: dict[tuple[str, Risk], tuple[Decision, Decision, Decision, Decision]] = {
    ("read_file", "read"): ("allow", "allow", "allow", "allow"),
    ("write_file", "write"): ("deny", "ask", "allow", "allow"),
    ("run_command", "execute"): ("deny", "ask", "ask", "allow"),
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_the_table_holds_in_every_mode(row: tuple[str, Risk]) -> None:
    tool, risk = row
    command = "make test" if risk == "execute" else None
    assert tuple(ask(tool, risk, mode, command=command).decision for mode in MODES) == TABLE[row]


@pytest.mark.parametrize("mode", MODES)
def test_a_blocked_command_is_blocked_in_every_mode_even_if_it_was_allowed_for_the_session(mode: Mode) -> None:
    command = "rm -rf /"
    verdict = ask("run_command", "execute", mode, command=command, allows=frozenset({f"run_command({command})"}))
    assert verdict.decision == "blocked" and "every mode" in verdict.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("tool", "risk"), [("read_file", "read"), ("write_file", "write")])
def test_our_own_home_is_out_of_reach_in_every_mode(mode: Mode, tool: str, risk: Risk) -> None:
    assert ask(tool, risk, mode, path=f"{HOME}/config.json").decision == "deny"
    assert ask(tool, risk, mode, path=HOME).decision == "deny"
    assert ask("read_file", "read", mode, path=HOME + "-other/x").decision == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "denied"),
    [
        ("run_command", "anything", True),
        ("run_command(rm *)", "rm -rf build", True),
        ("run_command(rm *)", "make && rm x", True),
        ("run_command(rm *)", "ls\nrm x", True),
        ("run_command(rm *)", "r\\\nm x", True),
        ("run_command(rm *)", "echo $(rm x)", True),
        ("run_command(rm *)", "sudo rm x", True),
        ("run_command(rm *)", "CI=1 rm x", True),
        ("run_command(rm *)", "bash -c 'rm x'", True),
        ("run_command(rm *)", "/bin/rm x", True),
        ("run_command(rm *)", "xargs rm", True),
        ("run_command(rm *)", "ls rmdir", False),
        ("run_command(rm *)", "X=rm; $X x", True),
        ("run_command(rm *)", "echo 'rm x' | sh", True),
        ("run_command(rm *)", "bash <<E\nrm x\nE", True),
        ("run_command(rm *)", "2>/dev/null rm x", True),
        ("run_command(rm *)", "find . -exec rm {} +", True),
        ("run_command(rm *)", "echo 'rm x' > notes", False),
        ("run_command(rm *)", "cat > a.sh <<'E'\nrm x\nE", False),
        ("run_command(git push*)", "git -C sub -c a.b=c push origin", True),
        ("run_command(git push*)", "git  push", True),
        ("run_command()", "ls", True),
        ("run_command(git push*)", "git push origin", True),
        ("run_command(git push*)", "git pull", False),
        ("write_file", "ls", False),
        ("*", "ls", True),
    ],
)
def test_a_deny_rule_wins_even_in_allow_all_mode(rule: str, command: str, denied: bool) -> None:
    verdict = ask("run_command", "execute", "allow-all", command=command, deny=(rule,))
    assert verdict.decision == ("deny" if denied else "allow")


def test_a_deny_rule_hides_files_from_reading_too() -> None:
    assert ask("read_file", "read", path="/ws/.env", deny=("read_file(.env)",)).decision == "deny"
    assert ask("read_file", "read", path="/ws/a.env", deny=("read_file(.env)",)).decision == "allow"


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        ("secrets", "/ws/secrets/a/b", True), ("secrets/", "/ws/secrets/a", True), ("/ws/x", "/ws/x/deep", True),
        ("/ws/x", "/ws/xy", False), ("secrets", "/ws/my-secrets", False), ("secrets/**", "/ws/secrets/a", True),
        ("./.env", "/ws/.env", True), (".env", "/ws/.ENV", True), ("*.key", "/ws/a/b.key", True),
        ("caf\u00e9.txt", "/ws/cafe\u0301.txt", True), ("src/*.py", "/ws/src/a.py", True), ("/", "/ws/a", True),
        ("src/*.py", "/ws/lib/a.py", False), ("", "/ws/a", True),
    ],
)  # fmt: skip
def test_a_deny_rule_covers_a_file_however_it_is_spelled_and_a_folder_with_all_in_it(
    pattern: str, path: str, covered: bool
) -> None:
    verdict = ask("read_file", "read", path=path, deny=(f"read_file({pattern})",))
    assert verdict.decision == ("deny" if covered else "allow")


@pytest.mark.parametrize("mode", ["ask", "accept-edits", "allow-all"])
def test_a_protected_file_is_asked_each_time(mode: Mode) -> None:
    verdict = ask("write_file", "write", mode, path="/ws/.git/config", protected=True, allows=frozenset({"write_file"}))
    assert verdict.decision == "ask"
    assert verdict.choices == ("allow_once", "deny") and verdict.grant is None


def test_what_was_allowed_for_the_session_is_not_asked_again_and_nothing_else_is_allowed_by_it() -> None:
    first = ask("run_command", "execute", command="make test")
    assert first.decision == "ask" and first.grant is not None
    granted = frozenset({first.grant})
    assert ask("run_command", "execute", command="make test", allows=granted).decision == "allow"
    assert ask("run_command", "execute", command="make test; rm x", allows=granted).decision == "ask"
    assert ask("write_file", "write", allows=granted).decision == "ask"


def test_a_grant_does_not_lift_plan_mode() -> None:
    assert ask("write_file", "write", "plan", allows=frozenset({"write_file"})).decision == "deny"

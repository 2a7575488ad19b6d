"""What lies inside the workspace, whatever the spelling, and what is opened is what was judged."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from mxclaw_nb.protocol import ToolFailure
from mxclaw_nb.workspace import Workspace, is_protected, shown


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "outputs" / "s-1").mkdir(parents=True)
    (home / "outputs" / "s-1" / "long.txt").write_text("output")
    (home / "secrets.json").write_text("{}")
    return home


@pytest.fixture
def workspace(root: Path, home: Path) -> Workspace:
    return Workspace(root, home=home, readable=(home / "outputs" / "s-1",))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/cmdline", "/proc/version", "/sys/kernel/profiling"])
def test_the_kernels_own_files_are_out_of_reach_even_where_the_whole_machine_is_the_workspace(
    home: Path, path: str
) -> None:
    machine = Workspace(Path("/"), home=home)
    if not os.path.exists(path):
        pytest.skip(f"there is no {path}")
    with pytest.raises(ToolFailure) as caught:
        machine.open_file(machine.resolve_for_reading(path))
    assert caught.value.status == "denied"


def content(workspace: Workspace, text: str) -> str:
    descriptor = workspace.open_file(workspace.resolve_for_reading(text))
    with os.fdopen(descriptor) as file:
        return file.read()


def refused(workspace: Workspace, text: str, *, write: bool = False) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        workspace.resolve_for_writing(text) if write else workspace.resolve_for_reading(text)
    return caught.value


def test_every_spelling_of_an_inside_path_is_found(workspace: Workspace, root: Path) -> None:
    for text in ("src/a.py", "./src//a.py", f"{root}/src/a.py", "src/../src/a.py", f"../{root.name}/src/a.py"):
        place = workspace.resolve_for_reading(text)
        assert place.shown == "src/a.py" and place.path == root / "src" / "a.py"
        assert content(workspace, text) == "inside"


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    "text",
    ["../secret", "/etc/passwd", "src/../../secret", "~", "~root/x", "/proc/self/root/etc/passwd", "out", "outdir/x",
     "chain", "/", "..", "/dev/zero", "../ws2/x", "/proc/self/cwd"],
)  # fmt: skip
def test_outside_is_denied_and_both_places_are_named(workspace: Workspace, root: Path, text: str, write: bool) -> None:
    (root / "out").symlink_to("../secret")
    (root / "outdir").symlink_to(root.parent)
    (root / "chain").symlink_to("out")
    error = refused(workspace, text, write=write)
    assert error.status == "denied" and text in error.message and str(root) in error.message


def test_links_that_stay_inside_lead_to_the_real_file(workspace: Workspace, root: Path) -> None:
    (root / "link").symlink_to("src")
    (root / "file").symlink_to("link/../src/a.py")
    assert workspace.resolve_for_reading("file").shown == "src/a.py"
    assert workspace.resolve_for_writing("link/new.py").shown == "src/new.py"


def test_dot_dot_after_a_link_means_the_parent_of_where_it_leads(workspace: Workspace, root: Path) -> None:
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "x").write_text("")
    (root / "link").symlink_to("deep/er")
    assert workspace.resolve_for_reading("link/../x").shown == "deep/x"


def test_a_dangling_link_is_never_written_through(workspace: Workspace, root: Path) -> None:
    (root / "dangling").symlink_to("nowhere")
    (root / "dangling-dir").symlink_to("nowhere")
    assert "does not exist" in refused(workspace, "dangling").message
    for text in ("dangling", "dangling-dir/x"):
        error = refused(workspace, text, write=True)
        assert error.status == "denied" and "symbolic link" in error.message


def test_a_circle_of_links_ends(workspace: Workspace, root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert "circles" in refused(workspace, "a").message


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"), ("a\0b", "NUL"), ("x" * 300, "longer"), ("a/" * 3000, "longer"), ("\ud83d", "surrogate"),
        ("src/a.py/b", "behind a file"), ("no/../src", "does not exist"), ("src/b.py", 'Did you mean "src/a.py"?'),
        ("SRC/a.py", "does not exist"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_explained(workspace: Workspace, text: str, word: str) -> None:
    error = refused(workspace, text)
    assert word in error.message and error.status == "error" and error.message.endswith((".", "?"))


def test_f22_a_windows_path_survives_unchanged(workspace: Workspace, root: Path) -> None:
    place = workspace.resolve_for_writing(r"C:\Users\unicorn\table.txt")
    assert place.shown == r"C:\Users\unicorn\table.txt"
    if os.name != "nt":
        assert place.path == root / r"C:\Users\unicorn\table.txt"
        assert (
            r'"C:\Users\unicorn\table.txt" does not exist' in refused(workspace, r"C:\Users\unicorn\table.txt").message
        )


@pytest.mark.parametrize(("on_disk", "asked"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_another_unicode_form_of_a_name_is_the_same_file(
    workspace: Workspace, root: Path, on_disk: str, asked: str
) -> None:
    name = unicodedata.normalize(on_disk, "café-설계.txt")  # type: ignore[arg-type]
    (root / name).write_text("x")
    typed = unicodedata.normalize(asked, "café-설계.txt")  # type: ignore[arg-type]
    assert workspace.resolve_for_writing(typed).path.name == name
    assert content(workspace, typed) == "x"


def test_outputs_of_the_session_can_be_read_and_nothing_else_of_ours(workspace: Workspace, home: Path) -> None:
    place = workspace.resolve_for_reading(str(home / "outputs" / "s-1" / "long.txt"))
    assert place.output and content(workspace, str(place.path)) == "output"
    (home / "outputs" / "s-1" / "link").symlink_to("../../secrets.json")
    for text in (home / "secrets.json", home, home / "outputs", home / "outputs" / "s-1" / "link"):
        assert refused(workspace, str(text)).status == "denied"
    assert refused(workspace, str(place.path), write=True).status == "denied"


@pytest.fixture
def inner(root: Path) -> Workspace:
    """A workspace that our own home lies in."""
    (root / ".mx-claw" / "memory").mkdir(parents=True)
    (root / ".mx-claw" / "secrets.json").write_text("{}")
    (root / ".mx-claw" / "memory" / "USER.md").write_text("u")
    return Workspace(root, home=root / ".mx-claw")


@pytest.mark.parametrize(
    "text",
    [".mx-claw/secrets.json", ".mx-claw", ".MX-CLAW/secrets.json", ".mx-claw/new", ".mx-claw./x", ".m\u200cx-claw/x",
     "link/secrets.json", "src/../.mx-claw/secrets.json", "onefile"],
)  # fmt: skip
def test_our_own_home_is_refused_inside_the_workspace_too(inner: Workspace, text: str) -> None:
    (inner.root / "link").symlink_to(".mx-claw")
    (inner.root / "onefile").symlink_to("link/secrets.json")
    for write in (False, True):
        error = refused(inner, text, write=write)
        assert error.status == "denied" and "mxclaw's own folder" in error.message


@pytest.mark.parametrize("file", ["secrets.json", "memory/USER.md"])
def test_a_hard_link_to_a_file_of_ours_is_not_opened(inner: Workspace, file: str) -> None:
    os.link(inner.root / ".mx-claw" / file, inner.root / "innocent")
    with pytest.raises(ToolFailure, match="mxclaw's own") as caught:
        content(inner, "innocent")
    assert caught.value.status == "denied"
    os.link(inner.root / "src" / "a.py", inner.root / "other")
    assert content(inner, "other") == "inside"


def test_a_home_that_is_not_made_yet_is_refused_by_name(root: Path) -> None:
    assert refused(Workspace(root, home=root / ".mx-claw"), ".Mx-Claw/x", write=True).status == "denied"


@pytest.mark.parametrize("swap", ["file", "folder", "root"])
def test_what_is_swapped_between_judging_and_opening_does_not_escape(
    workspace: Workspace, root: Path, tmp_path: Path, swap: str
) -> None:
    outside = tmp_path / "outside" / "src"
    outside.mkdir(parents=True)
    (outside / "a.py").write_text("outside")
    reading, writing = workspace.resolve_for_reading("src/a.py"), workspace.resolve_for_writing("src/new/b.py")
    victim = {"file": root / "src" / "a.py", "folder": root / "src", "root": root}[swap]
    victim.rename(tmp_path / "moved")
    victim.symlink_to({"file": outside / "a.py", "folder": outside, "root": outside.parent}[swap])
    with pytest.raises(ToolFailure):
        workspace.open_file(reading)
    if swap != "file":
        with pytest.raises(ToolFailure, match="replaced by something else") as caught:
            workspace.open_parent(writing, create=True)
        assert caught.value.status == "denied"
        assert not (outside / "new").exists()


def test_new_folders_are_made_where_asked(workspace: Workspace, root: Path) -> None:
    place = workspace.resolve_for_writing("x/y/z.txt")
    assert not place.exists
    with workspace.open_parent(place, create=True) as folder:
        assert folder.path == root / "x" / "y" and (root / "x" / "y").is_dir()


def test_only_regular_files_are_opened(workspace: Workspace, root: Path) -> None:
    os.mkfifo(root / "pipe")
    for text, kind in (("pipe", "a named pipe"), ("src", "a folder")):
        with pytest.raises(ToolFailure, match=f"{text} is {kind}"):
            workspace.open_file(workspace.resolve_for_reading(text))


def test_no_descriptor_is_left_open(workspace: Workspace, root: Path) -> None:
    os.mkfifo(root / "pipe")
    before = len(os.listdir("/dev/fd"))
    for text in ("src/a.py", "pipe", "src"):
        try:
            os.close(workspace.open_file(workspace.resolve_for_reading(text)))
        except ToolFailure:
            continue
    workspace.open_parent(workspace.resolve_for_writing("p/q/r"), create=True).close()
    assert len(os.listdir("/dev/fd")) == before


def test_a_workspace_that_is_no_folder_is_refused(root: Path, home: Path) -> None:
    for path in (root / "none", root / "src" / "a.py"):
        with pytest.raises(ToolFailure, match="does not exist or is not a folder"):
            Workspace(path, home=home)


@pytest.mark.parametrize(
    "path",
    [".git/config", ".git/hooks/pre-commit", "sub/.GIT/config", ".git", ".mx-claw/hooks.json", ".VSCode/tasks.json",
     ".idea/x", ".bashrc", "home/.zshrc", ".mcp.json", ".env", ".env.local", ".ENV", ".jupyter/x.py", ".ipython/y",
     "jupyter_server_config.py", ".venv/lib/x.pth", "sitecustomize.py", "book.ipynb", ".config/git/config",
     ".gi\u200ct/x",
     ".git./config", ".husky/pre-commit", ".ssh/authorized_keys"],
)  # fmt: skip
def test_protected_paths_in_any_spelling(path: str) -> None:
    assert is_protected(path.split("/"))


@pytest.mark.parametrize(
    "path",
    ["a.py", ".gitignore", "git/config", "env.py", ".github/x.yml", "src/bashrc", ".config/x", "README", "x.env"],
)
def test_ordinary_paths_are_not_protected(path: str) -> None:
    assert not is_protected(path.split("/"))


def test_names_are_shown_without_tricks() -> None:
    assert shown("a\nb\u202e\x1b[0m") == r"a\nb\u202e\x1b[0m"
    assert shown(os.fsdecode(b"caf\xe9")) == r"caf\xe9" and shown("设计 é.txt") == "设计 é.txt"

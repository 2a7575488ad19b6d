"""The process between us and a command: it starts the command, and kills all of it, whatever becomes of us.

A program of its own, run as ``python -I -S -E -X utf8 -c BOOT FOLDER OWNER TIMEOUT_MS GRACE_MS STDIN CWD ARGUMENT...``;
each command waits for its start, so it is imported (compiled once) and imports little. Its descriptors: 0 is a
socket to the owner, 1 and 2 become the command's. STDIN is the number of the descriptor that becomes the command's
standard input, or -1 for none.

Why a process: only a child subreaper sees daemons (double forks, ``setsid``), the kernel of the user must not become
one, and when the owner is killed somebody must still be there. It tells the owner in lines: ``started PID``,
``failed ERRNO STAGE``, ``exited CODE``, ``signalled NUMBER``, ``timeout``, ``stragglers COUNT``, ``straggler NAME``,
``survivor NAME``, and ``done`` at last. The owner says ``K`` for kill. End of file from it, or a new parent, is the
same word.

Without Linux there is no subreaper: then the command's process group is what is killed, and a daemon that left
it lives on.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # without the enums of `signal`, a third of the start-up time

BOOT = "import sys; sys.path.append(sys.argv[1]); import launcher; launcher.start()  # mxclaw_nb launcher"
"""The program text; ``inside_agent_command`` knows a launcher by it."""

_DRAIN_S = 0.1  # after the command's end, what it left behind may end by itself (`> >(tee log)`)
_KILL_S = 0.3  # how long to insist after SIGKILL; what then lives cannot be killed by us
_OWNER_CHECK_S = 0.25
_NAMED = 20
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Launcher:
    """One command, from fork to the last of its descendants. Times are in seconds, monotonic."""

    def __init__(self, owner: int, control: int) -> None:
        self.owner = owner
        self.control = control
        self._pid = os.getpid()
        self.command = 0
        self.status: int | None = None
        self.childless = False
        self.subreaper = False
        self._alarm, alarm_in = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(alarm_in, False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(alarm_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self._prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
        if self._prctl is not None:
            self.subreaper = self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._alarm, select.POLLIN)

    def tell(self, *words: object) -> None:
        """A line to the owner, who may be gone."""
        try:
            os.write(self.control, (" ".join(map(str, words)) + "\n").encode("utf-8", "surrogateescape"))
        except OSError:
            self.owner = -1

    def start(self, argv: list[str], cwd: str, stdin: int) -> None:
        """Fork and exec. What fails in the child is told to the owner by the child itself."""
        try:
            self.command = os.fork()
        except OSError as error:
            self.tell("failed", error.errno, "fork")
            return
        if self.command == 0:
            stage = "prepare"
            try:
                self._prepare(stdin)
                stage = "cwd"
                os.chdir(cwd)
                stage = "exec"
                os.execvp(argv[0], argv)
            except OSError as error:
                self.tell("failed", error.errno, stage)
            finally:
                os._exit(127)
        self.tell("started", self.command)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        if stdin >= 0:
            os.close(stdin)

    def _prepare(self, stdin: int) -> None:
        """In the child: a session of its own, signals as at login, nothing of ours but output and input."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                try:
                    signal.signal(number, signal.SIG_DFL)
                except OSError:  # a number that the C library keeps for itself
                    continue
        if self._prctl is not None:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != self._pid:
                os._exit(127)
        os.dup2(stdin if stdin >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
        if stdin >= 0:
            os.close(stdin)

    def supervise(self, timeout_s: float) -> str:
        """Wait until the command ends, its time is up, or the owner wants no more. Returns end, timeout or stop."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.reap()
            if self.status is not None:
                return "end"
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            if self.wait(min(left, _OWNER_CHECK_S)):
                return "stop"

    def wait(self, seconds: float) -> bool:
        """Wait for a child's end. True at once when the owner wants no more."""
        ready = self._poll.poll(max(seconds, 0) * 1000)
        for descriptor, _ in ready:
            if descriptor == self.control:
                return True
            try:
                os.read(descriptor, 4096)
            except BlockingIOError:
                continue
        return self.owner != os.getppid()

    def reap(self) -> None:
        """Collect every child that ended: the command, and what became ours because its parent died."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            if pid == self.command:
                self.status = status

    def alive(self) -> bool:
        """Whether anything of the command is left. With a subreaper, having no child means having no descendant."""
        self.reap()
        if not self.childless:
            return True
        return not self.subreaper and self.signal_group(self.command, 0)

    def signal_group(self, group: int, number: int) -> bool:
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def signal_all(self, *numbers: int) -> list[str]:
        """Send signals to the command's group and to all descendants. Returns the descendants' names."""
        found = descendants(os.getpid()) if self.subreaper else {}
        groups = {group for group, _ in found.values()} - {os.getpgrp()}
        if self.status is None or not self.subreaper:
            groups.add(self.command)
        for number in numbers:
            for group in groups:  # atomic against fork, which a walk over processes is not
                self.signal_group(group, number)
            for pid in found:
                try:
                    os.kill(pid, number)
                except (ProcessLookupError, PermissionError):
                    continue
        return [name for _, name in found.values()]

    def let_end(self, seconds: float) -> None:
        """Give what is left that long to end by itself."""
        deadline = time.monotonic() + seconds
        while self.alive() and (left := deadline - time.monotonic()) > 0:
            if self.wait(min(left, 0.01)):
                return

    def kill(self, grace_s: float) -> list[str]:
        """TERM, the grace, KILL. Returns the names of what could not be killed."""
        if not self.alive():
            return []
        self.signal_all(signal.SIGTERM, signal.SIGCONT)
        deadline = time.monotonic() + grace_s
        while self.alive() and (left := deadline - time.monotonic()) > 0:
            self._pause(left)
        deadline = time.monotonic() + _KILL_S
        while self.alive():
            names = self.signal_all(signal.SIGKILL)
            if time.monotonic() > deadline:
                return names or ["process group"]
            self._pause(0.01)
        return []

    def _pause(self, seconds: float) -> None:
        """Until a child ends, or 10 ms at most; the owner has nothing more to say."""
        if select.select([self._alarm], [], [], min(seconds, 0.01))[0]:
            os.read(self._alarm, 4096)

    def report_status(self) -> None:
        if self.status is None:
            return
        if os.WIFSIGNALED(self.status):
            self.tell("signalled", os.WTERMSIG(self.status))
        else:
            self.tell("exited", os.WEXITSTATUS(self.status))


def descendants(ancestor: int) -> dict[int, tuple[int, str]]:
    """Living descendants of a process from /proc: pid to process group and name. Zombies are left out."""
    children: dict[int, list[int]] = {}
    known: dict[int, tuple[int, str, bool]] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return {}
    for entry in entries:
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                head, _, rest = file.read().rpartition(b")")
        except OSError:  # it ended meanwhile
            continue
        fields = rest.split()
        name = head.partition(b"(")[2].decode("utf-8", "replace")
        known[int(entry)] = int(fields[2]), printable(name), fields[0] in (b"Z", b"X")
        children.setdefault(int(fields[1]), []).append(int(entry))
    found: dict[int, tuple[int, str]] = {}
    todo = list(children.get(ancestor, ()))
    while todo:
        pid = todo.pop()
        todo.extend(children.get(pid, ()))
        group, name, dead = known[pid]
        if not dead:
            found[pid] = group, name
    return found


def printable(name: str) -> str:
    """A process name, which its owner chooses, without anything that could end a line or hide."""
    return "".join(character if character.isprintable() else "?" for character in name) or "?"


def oversee(launcher: Launcher, timeout_s: float, grace_s: float) -> None:
    """Wait for the command, kill what is left of it, tell the owner all that."""
    if launcher.command <= 0:
        return
    reason = launcher.supervise(timeout_s)
    left_behind: list[str] = []
    if reason == "end":
        launcher.let_end(_DRAIN_S)
        if launcher.alive():
            found = descendants(os.getpid()).values()
            left_behind = [name for _, name in found] if launcher.subreaper else ["process group"]
    elif reason == "timeout":
        launcher.tell("timeout")
    survivors = launcher.kill(grace_s)
    launcher.report_status()
    if left_behind:
        launcher.tell("stragglers", len(left_behind))
    for name in left_behind[:_NAMED]:
        launcher.tell("straggler", name)
    for name in survivors[:_NAMED]:
        launcher.tell("survivor", name)


def main(arguments: list[str]) -> None:
    owner, timeout_ms, grace_ms, stdin = map(int, arguments[:4])
    cwd, argv = arguments[4], arguments[5:]
    launcher = Launcher(owner, os.dup(0))
    if not launcher.wait(0):
        launcher.start(argv, cwd, stdin)
    try:
        oversee(launcher, timeout_ms / 1000, grace_ms / 1000)
    except BaseException:  # a fault of ours must not leave the command behind
        launcher.kill(0)
        raise
    launcher.tell("done")


def start() -> None:
    """The program."""
    try:
        main(sys.argv[2:])
    finally:
        os._exit(0)

"""The lease of a session: who holds it, whether that one still lives, and how it changes hands."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass

from mxclaw_nb.protocol import LeaseHeld, LeaseLost

from .identity import Clock, ProcessIdentity, ProcessState, state_of_process, system_clock

_COLUMNS = (
    "session, token, turn_id, program, host, boot_id, pid, pid_namespace, process_started, counter, renewed_at, ttl"
)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds: how long a lease lives without renewal, how often it is renewed, how often signals are looked for."""

    ttl_s: float = 30.0
    renew_s: float = 10.0
    poll_s: float = 0.1


@dataclass(frozen=True, slots=True)
class Lease:
    """A row of ``leases``. ``renewed_at`` is on the clock of the boot ``boot_id``."""

    session: int
    token: str
    turn_id: str
    program: str
    host: str
    boot_id: str
    pid: int
    pid_namespace: str
    process_started: str
    counter: int
    renewed_at: float
    ttl: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """Since when, on the observer's clock, a lease's counter has stood still."""

    token: str
    counter: int
    seen_at: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What an observer makes of a lease. ``age`` is in seconds, None if it cannot be known."""

    live: bool
    age: float | None
    comparable: bool


@dataclass(frozen=True, slots=True)
class Observer:
    """Who looks at a lease: a process, its machine's clock, and the tokens that it knows to be given up."""

    identity: ProcessIdentity
    clock: Clock = system_clock
    process_state: Callable[[int, str], ProcessState] = state_of_process
    given_up: Collection[str] = ()

    @property
    def machine(self) -> str:
        """The name under which this machine (in this boot) remembers what it saw."""
        return self.identity.boot_id or self.identity.host


def judge(lease: Lease, observer: Observer, sighting: Sighting | None) -> Standing:
    """Whether a lease still stands.

    On the same boot its age is a difference of one clock, and a dead or reused pid in the same pid namespace ends it
    at once. Elsewhere, or where clocks cannot be compared, its counter must have stood still for its whole life
    before the observer's own eyes. The wall clock has no part in it.
    """
    now, me = observer.clock(), observer.identity
    if lease.token in observer.given_up:
        return Standing(False, None, True)
    if me.boot_id and lease.boot_id == me.boot_id:
        same_pids = lease.pid_namespace == me.pid_namespace
        if same_pids and observer.process_state(lease.pid, lease.process_started) == "gone":
            return Standing(False, None, True)
        age = now - lease.renewed_at
        if age >= 0:
            return Standing(age <= lease.ttl, age, True)
    if sighting is not None and sighting.token == lease.token and sighting.counter == lease.counter:
        still = now - sighting.seen_at
        return Standing(still < lease.ttl, max(0.0, still), False)
    return Standing(True, None, False)


def find(connection: sqlite3.Connection, no: int) -> Lease | None:
    """The session's lease, whoever holds it."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM leases WHERE session = ?", (no,)).fetchone()
    return Lease(*row) if row else None


def standing(connection: sqlite3.Connection, lease: Lease, observer: Observer) -> Standing:
    """``judge``, with what this machine has seen of the lease before."""
    return judge(lease, observer, _sighting(connection, lease.session, observer.machine))


def live(connection: sqlite3.Connection, no: int, observer: Observer) -> Lease | None:
    """The session's lease if it still stands."""
    lease = find(connection, no)
    return lease if lease is not None and standing(connection, lease, observer).live else None


def _sighting(connection: sqlite3.Connection, no: int, machine: str) -> Sighting | None:
    row = connection.execute(
        "SELECT token, counter, seen_at FROM lease_sightings WHERE session = ? AND observer = ?", (no, machine)
    ).fetchone()
    return Sighting(*row) if row else None


def remember_sighting(connection: sqlite3.Connection, lease: Lease, observer: Observer) -> None:
    """Note the counter of a lease whose age cannot be known, unless it was noted already and has not moved."""
    seen, now = _sighting(connection, lease.session, observer.machine), observer.clock()
    if seen and (seen.token, seen.counter) == (lease.token, lease.counter) and seen.seen_at <= now:
        return
    connection.execute(
        "INSERT OR REPLACE INTO lease_sightings (session, observer, token, counter, seen_at) VALUES (?, ?, ?, ?, ?)",
        (lease.session, observer.machine, lease.token, lease.counter, now),
    )


def take(
    connection: sqlite3.Connection, no: int, token: str, turn_id: str, observer: Observer, timing: LeaseTiming
) -> None:
    """Make ``token`` the holder, in place of a dead one."""
    me = observer.identity
    connection.execute("DELETE FROM lease_sightings WHERE session = ?", (no,))
    connection.execute(
        f"INSERT OR REPLACE INTO leases ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
        (
            no, token, turn_id, me.program, me.host, me.boot_id, me.pid, me.pid_namespace, me.started,
            observer.clock(), timing.ttl_s,
        ),
    )  # fmt: skip


def renew(connection: sqlite3.Connection, no: int, token: str, now: float) -> None:
    """Show that the holder lives. Raises LeaseLost."""
    changed = connection.execute(
        "UPDATE leases SET counter = counter + 1, renewed_at = ? WHERE session = ? AND token = ?", (now, no, token)
    ).rowcount
    if not changed:
        raise lost(connection, no)


def require(connection: sqlite3.Connection, no: int, token: str) -> None:
    """The fence: raise LeaseLost unless ``token`` holds the lease in this very transaction."""
    if connection.execute("SELECT 1 FROM leases WHERE session = ? AND token = ?", (no, token)).fetchone() is None:
        raise lost(connection, no)


def lost(connection: sqlite3.Connection, no: int) -> LeaseLost:
    """In words: who has the session now."""
    lease = find(connection, no)
    taker = f"{lease.program} on {lease.host} (pid {lease.pid}) runs it now" if lease else "its lease is gone"
    return LeaseLost(
        f"This turn lost its session, so nothing more of it is stored: {taker}. It was silent for too long (a"
        " sleeping machine, a stopped process); look at the session before asking again."
    )


def held(lease: Lease, session_id: str, standing: Standing) -> LeaseHeld:
    """In words: who holds the session, where, and when that one last showed life."""
    age = "not known on this machine" if standing.age is None else f"{standing.age:.0f} s"
    seen = f"age of its lease: {age}"
    if not standing.comparable:
        seen += f"; it counts as dead if it shows no life for {lease.ttl:.0f} s, so try again then"
    return LeaseHeld(
        f"Session {session_id} is running turn {lease.turn_id} in {lease.program} (host {lease.host}, pid {lease.pid},"
        f" {seen}). Wait for it, stop it with `mxclaw stop {session_id}`, or use another session."
    )


def release(connection: sqlite3.Connection, no: int, token: str) -> None:
    """Give the lease back."""
    connection.execute("DELETE FROM leases WHERE session = ? AND token = ?", (no, token))
    connection.execute("DELETE FROM stop_requests WHERE session = ?", (no,))


def request_stop(connection: sqlite3.Connection, lease: Lease, by: str, at: str) -> None:
    """Ask the turn that holds this lease to stop; the first request counts."""
    connection.execute(
        "INSERT OR IGNORE INTO stop_requests (session, token, requested_by, requested_at) VALUES (?, ?, ?, ?)",
        (lease.session, lease.token, by, at),
    )


def stop_requested_by(connection: sqlite3.Connection, no: int, token: str) -> str | None:
    """Who asked this holder to stop, if anybody did."""
    row = connection.execute(
        "SELECT requested_by FROM stop_requests WHERE session = ? AND token = ?", (no, token)
    ).fetchone()
    return row[0] if row else None

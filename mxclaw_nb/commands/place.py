"""Where a command was typed, and the session that belongs there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mxclaw_nb.app import App
from mxclaw_nb.protocol import Frontend, NotFound, Session, SessionChanges, UsageError
from mxclaw_nb.text import encodable


@dataclass
class Place:
    """A notebook, a kernel or a terminal. It remembers its session; ``mxclaw`` itself starts without one.

    ``notebook`` is the key under which the session is found again when the notebook is reopened (None: never).
    ``prefix`` is what a person types before a command here: ``%mxclaw`` or ``mxclaw``.
    """

    workspace: Path
    notebook: str | None = None
    title: str = ""
    prefix: str = "mxclaw"
    session_id: str | None = None

    @property
    def keeps_session(self) -> bool:
        """Whether a session chosen here is still there for the next command."""
        return self.prefix.startswith("%")


@dataclass(frozen=True)
class Call:
    """What a command works with: the app, the screen and the place."""

    app: App
    frontend: Frontend
    place: Place

    async def current_session(self) -> Session | None:
        """The session of this place, if it has one by now."""
        place = self.place
        if place.session_id is not None:
            try:
                return await self.app.store.session(place.session_id)
            except NotFound:  # deleted meanwhile
                place.session_id = None
        if place.notebook is not None:
            found = await self.app.store.session_for_notebook(place.notebook)
            if found is not None:
                place.session_id = found.id
                return found
        return None

    async def new_session(self, *, title: str = "", model: str | None = None) -> Session:
        """A new session, which becomes the one of this place. Raises UsageError where no agent may work."""
        workspace = self.place.workspace
        if not workspace.is_dir():
            raise UsageError(f"The folder to work in, {workspace}, does not exist. Start in another one.")
        if encodable(str(workspace)) != str(workspace):
            raise UsageError(f"The name of {workspace} is not UTF-8, which no model can be told. Rename the folder.")
        if workspace.resolve().is_relative_to(self.app.home):
            raise UsageError(f"{workspace} lies in mxclaw's own home, where no agent may work. Start in another one.")
        session = await self.app.store.create_session(
            workspace=str(self.place.workspace),
            model=model,
            mode=self.app.settings.load().default_mode,
            title=title or self.place.title,
            notebook=self.place.notebook,
        )
        self.place.session_id = session.id
        return session

    async def use_session(self, session: Session) -> None:
        """Make ``session`` the one of this place, for good where the place is a notebook."""
        if self.place.notebook is not None:
            await self.app.store.update_session(session.id, SessionChanges(notebook=self.place.notebook))
        self.place.session_id = session.id

    async def named_session(self, session_id: str | None) -> Session:
        """The session of that id (or unique prefix), else the current one. Raises NotFound."""
        if session_id:
            return await self.app.store.session(session_id)
        session = await self.current_session()
        if session is None:
            raise NotFound(
                "There is no session here yet. Start a turn, or name a session with its id: "
                f"`{self.place.prefix} session list` shows them all."
            )
        return session

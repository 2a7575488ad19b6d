"""The turns that run in this kernel, and the one place to look at all of them: ``%mxclaw panel``."""

from __future__ import annotations

from collections.abc import Callable

from IPython.display import display

from .styles import STYLE
from .view import LiveView
from .widgets import PageWatch, Widget, bundle, close_all, column, html

_IDLE = (
    '<div class="mxc mxc-rec"><div class="mxc-head"><span><span class="mxc-i" aria-hidden="true">·</span> '
    "<b>No agent turn is running in this kernel</b></span> <span>{}</span></div></div>"
)
_FALLBACK = {
    "text/plain": "[agent panel: shows what runs in this kernel; run the cell again for it]",
    "text/markdown": "*agent panel: shows what runs in this kernel; run the cell again for it*",
}


class LiveTurns:
    """All live views of the process. While there is one, pages that attach are noticed."""

    def __init__(self) -> None:
        self._views: list[LiveView] = []
        self._left: list[Widget] = []
        self._watch = PageWatch(self._page_attached)
        self._panel: Widget | None = None
        self._last = ""

    @property
    def views(self) -> tuple[LiveView, ...]:
        return tuple(self._views)

    def open(self, make: Callable[[Callable[[LiveView], None]], LiveView]) -> LiveView:
        """Make a view, told what to call when it closes, and keep it until then."""
        self._watch.start()
        try:
            view = make(self._closed)
        except BaseException:
            self._rest()
            raise
        self._views.append(view)
        self._fill_panel()
        return view

    def show_panel(self) -> None:
        """Show the panel in this cell too."""
        if self._panel is None:
            self._panel = column(width="auto")
            self._fill_panel()
        display(bundle(self._panel, _FALLBACK), raw=True)

    def unload(self) -> None:
        """Close what stays open between turns: the panel, and records in pages that attached to a running turn."""
        panel, self._panel = self._panel, None
        if panel is not None:
            own = panel.children
            panel.children = ()
            for child in own:
                if child not in [view.box for view in self._views]:
                    close_all(child)
            close_all(panel)
        left, self._left = self._left, []
        for box in left:
            close_all(box)

    def _closed(self, view: LiveView) -> None:
        if view in self._views:
            self._views.remove(view)
        if view.reattached:
            self._left.append(view.box)
        self._last = view.final_html
        self._fill_panel()
        self._rest()

    def _rest(self) -> None:
        if not self._views:
            self._watch.stop()

    def _page_attached(self) -> None:
        for view in self._views:
            view.page_attached()

    def _fill_panel(self) -> None:
        panel = self._panel
        if panel is None:
            return
        before = panel.children
        boxes = [view.box for view in self._views]
        panel.children = tuple(boxes) if boxes else (self._idle(),)
        for child in before:
            if child not in panel.children and "mxc-live" not in child._dom_classes:
                close_all(child)

    def _idle(self) -> Widget:
        """What the panel shows between turns: that there is none, and what the last one came to."""
        words = "below is the last one" if self._last else "the next one will be shown here"
        return html(STYLE + _IDLE.format(words) + self._last.removeprefix(STYLE), width="auto", margin="0")


TURNS = LiveTurns()

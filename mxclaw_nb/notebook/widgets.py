"""ipywidgets, handled with care: shown with a fallback, closed without a trace, alive or not, a page that attaches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ipywidgets

CONTROL_TARGET = "jupyter.widget.control"
"""The comm that a page opens when it attaches to a running kernel and wants the state of its widgets."""

Widget = Any
"""An ipywidgets.Widget; the library is not typed."""


def html(value: str = "", **layout: str) -> Widget:
    """An HTML widget. ``value`` goes into the page as it is: escape before."""
    return ipywidgets.HTML(value, layout=ipywidgets.Layout(**layout))


def column(children: Iterable[Widget] = (), **layout: str) -> Widget:
    return ipywidgets.VBox(list(children), layout=ipywidgets.Layout(**layout))


def row(children: Iterable[Widget] = (), **layout: str) -> Widget:
    return ipywidgets.HBox(list(children), layout=ipywidgets.Layout(**layout))


def button(label: str, tooltip: str, on_click: Callable[[], None], *, style: str = "") -> Widget:
    """A button; ``on_click`` may be called on any thread."""
    widget = ipywidgets.Button(
        description=label, tooltip=tooltip, button_style=style, layout=ipywidgets.Layout(width="auto")
    )
    widget.on_click(lambda _button: on_click())
    return widget


def text_field(placeholder: str, label: str, on_enter: Callable[[], None]) -> Widget:
    """A field whose value comes when it is left, or just after Enter; ``on_enter`` may be called on any thread.

    Value by value, as it is typed, the page holds back all but the first until the kernel has answered: a button that
    is pressed meanwhile would overtake the rest.
    """
    widget = ipywidgets.Text(
        placeholder=placeholder,
        tooltip=label,
        continuous_update=False,
        layout=ipywidgets.Layout(flex="1 1 14em", width="auto", margin="2px"),
    )
    widget.on_msg(lambda _widget, content, _buffers: on_enter() if content.get("event") == "submit" else None)
    return widget


def bundle(widget: Widget, fallback: Mapping[str, str]) -> dict[str, object]:
    """What to display: the widget for a page that has it, ``fallback`` for everyone else."""
    shown = widget._repr_mimebundle_()
    data = dict(shown[0] if isinstance(shown, tuple) else shown)
    return {**data, **fallback}


def close_all(widget: Widget, *, keep: Iterable[Widget] = ()) -> None:
    """Close a widget and everything in it, layouts and styles included; ``keep`` (with their layouts) stays open.

    A container is emptied before its children are closed: with closed ones in it the state of every widget in the
    kernel, the user's too, could no longer be sent to a page that reloads.
    """
    kept = {id(part) for wanted in keep for part in (wanted, *_parts(wanted))}
    _close(widget, kept)


def _parts(widget: Widget) -> list[Widget]:
    parts = (getattr(widget, name, None) for name in ("layout", "style"))
    return [part for part in parts if isinstance(part, ipywidgets.Widget)]


def _close(widget: Widget, kept: set[int]) -> None:
    children = tuple(getattr(widget, "children", ()))
    if children and id(widget) not in kept:
        widget.children = ()
    for child in children:
        _close(child, kept)
    for part in (*_parts(widget), widget):
        if id(part) not in kept:
            part.close()


class Pulse:
    """Whether a page with living widgets is there: it answers a link between two models, without being clicked.

    The page copies ``width`` from one invisible model to the other and sends it back. Where that never comes there is
    no page, or none that can reach a suspended cell, and buttons would wait for ever.
    """

    def __init__(self) -> None:
        self._source = ipywidgets.Layout(width="1px")
        self._target = ipywidgets.Layout()
        self._link = ipywidgets.jsdlink((self._source, "width"), (self._target, "width"))

    @property
    def felt(self) -> bool:
        return bool(self._target.width == "1px")

    async def wait(self, timeout_s: float) -> bool:
        """Whether it came within ``timeout_s`` seconds."""
        loop = asyncio.get_running_loop()
        felt = asyncio.Event()

        def on_change(_change: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(felt.set)

        self._target.observe(on_change, "width")
        try:
            if not self.felt:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await felt.wait()
            return self.felt
        finally:
            self._target.unobserve(on_change, "width")

    def close(self) -> None:
        self._target.unobserve_all()
        for model in (self._link, self._source, self._target):
            model.close()


class PageWatch:
    """Notices that a page attaches to the kernel, by standing in front of ipywidgets' own handler while it is on."""

    def __init__(self, on_attach: Callable[[], None]) -> None:
        self._on_attach = on_attach
        self._before: Callable[[object, object], None] | None = None
        self._on = False

    def start(self) -> None:
        from comm import get_comm_manager

        if self._on:
            return
        manager = get_comm_manager()
        self._before = manager.targets.get(CONTROL_TARGET)
        manager.register_target(CONTROL_TARGET, self._opened)
        self._on = True

    def stop(self) -> None:
        """Put ipywidgets' own handler back, unless somebody else has taken the place meanwhile."""
        from comm import get_comm_manager

        manager = get_comm_manager()
        if self._on and manager.targets.get(CONTROL_TARGET) == self._opened:
            if self._before is not None:
                manager.register_target(CONTROL_TARGET, self._before)
            else:
                manager.unregister_target(CONTROL_TARGET, self._opened)
        self._on = False

    def _opened(self, comm: object, message: object) -> None:
        self._on_attach()
        handler = self._before or ipywidgets.Widget.handle_control_comm_opened
        handler(comm, message)

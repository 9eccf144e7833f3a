"""The engine's events, onto the chat screen: looked for while something is expected, drawn at a rate it can bear."""

import os
from time import monotonic, thread_time
from typing import TYPE_CHECKING

from textual.timer import Timer

from specchat.tui.collector import Collector
from specchat.tui.engine_events import Update, UpdateKind

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen

_POLL_HZ = 30
_TEXT_HZ = 15
_GAUGES_HZ = 5
_SHARE = min(0.03 * (os.cpu_count() or 1), 0.2)
"""Of one processor core, spent on drawing a running reply: the engine may need all the others."""
_SLOWEST = 0.25
"""Seconds between draws when that share would ask for more."""
_IDLE_CHECK = 1.0
"""Seconds between looks at an idle engine."""


class Feed:
    """Its timer runs only while events are to be expected."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat
        self._text_at = self._gauges_at = self._worked = 0.0
        self._undrawn = False
        self._unsaved = ""
        self._poller: Timer | None = None
        self._collector = Collector()

    def start(self) -> None:
        """Begin once the screen is there."""
        self._poller = self._chat.set_interval(1 / _POLL_HZ, self._poll, pause=True)
        self._chat.set_interval(_IDLE_CHECK, self._check)

    def expect(self) -> None:
        """Events are to be expected: called after every request."""
        if self._poller is not None and self._chat.session.busy:
            self._poller.resume()

    def _poll(self) -> None:
        if self._chat.session.replies:
            self._collector.running()
        self._take(self._chat.session.poll())
        if not self._chat.session.busy and self._poller is not None:
            self._poller.pause()

    def _check(self) -> None:
        if not self._chat.session.busy:
            self._take(self._chat.session.check())
            shown = self._chat.session.conversation
            self._collector.idle(shown.key if shown.turns else "", self._chat.prompt.text)
        if self._unsaved != (problem := self._chat.session.chat.saving.problem):
            self._unsaved = problem
            self._chat.draw_rows()

    def _take(self, updates: list[Update]) -> None:
        if not updates:
            if self._undrawn:
                self._draw_steps()
            return
        if all(update.kind == "reply" for update in updates):
            self._draw_steps()
            return
        chat = self._chat
        for update in updates:
            if update.prompt:
                chat.prompt.restore(update.prompt)
            chat.happened(update.kind)
            if update.message:
                until: UpdateKind | None = "loaded" if update.kind == "loading" else None
                chat.say(update.message, bad=update.kind not in ("loaded", "answered"), until=until)
            if update.kind in ("ended", "answered", "loaded"):
                chat.count_soon()
                chat.chats.load_wanted()
            if update.kind in ("ended", "answered"):
                chat.chats.redraw()
        chat.queue.look()
        chat.redraw()
        self.expect()

    def _draw_steps(self) -> None:
        """Draw what steps brought, at a rate that leaves the processor to the engine."""
        now, worked = monotonic(), thread_time()
        waited = now - self._text_at
        tired = worked - self._worked > _SHARE * waited and waited < _SLOWEST
        self._undrawn = tired or waited < 1 / _TEXT_HZ
        if self._undrawn:
            return
        self._text_at, self._worked = now, worked
        self._chat.draw_text()
        if now - self._gauges_at >= 1 / _GAUGES_HZ:
            self._gauges_at = now
            self._chat.draw_gauges()
            self._chat.draw_rows()

"""The engine's events, onto the chat screen: looked for while something is expected, drawn at a rate it can bear."""

import os
from collections.abc import Callable
from time import monotonic, thread_time

from textual.timer import Timer

from specchat.service.dispatch import Update
from specchat.tui.collector import Collector
from specchat.tui.screens.window import ChatWindow

_POLL_HZ = 30
_TEXT_HZ = 15
_GAUGES_HZ = 5
_SHARE = min(0.03 * (os.cpu_count() or 1), 0.2)
"""Of one processor core, spent on drawing a running reply: the engine may need all the others."""
_SLOWEST = 0.25
"""Seconds between draws when that share would ask for more."""
_IDLE_CHECK = 1.0
"""Seconds between looks at an idle engine."""
_CHATS_CHECK = 0.5
"""Seconds between looks at what other programs saved."""


class Feed:
    """Its timer runs only while events are to be expected.

    It draws steps by itself; `took` gets all updates of a look with others among them.
    """

    def __init__(self, window: ChatWindow, took: Callable[[list[Update]], None]) -> None:
        self._window = window
        self._took = took
        self._text_at = self._gauges_at = self._worked = 0.0
        self._undrawn = False
        self._unsaved = ""
        self._poller: Timer | None = None
        self._collector = Collector()

    def start(self) -> None:
        """Begin once the screen is there."""
        self._poller = self._window.set_interval(1 / _POLL_HZ, self._poll, pause=True)
        self._window.set_interval(_IDLE_CHECK, self._check)
        self._window.set_interval(_CHATS_CHECK, self._look_at_chats)

    def expect(self) -> None:
        """Events are to be expected: called after every request."""
        if self._poller is not None and self._window.session.busy:
            self._poller.resume()

    def asked(self) -> None:
        """A reply was asked for: it is drawn, and its events are expected."""
        window = self._window
        window.say(window.session.warning, bad=True)
        window.redraw()
        window.draw_chats()
        self.expect()

    def _poll(self) -> None:
        session = self._window.session
        if session.replies:
            self._collector.running()
        self._take(session.poll())
        if not session.busy and self._poller is not None:
            self._poller.pause()

    def _check(self) -> None:
        session = self._window.session
        if not session.busy:
            self._take(session.check())
            shown = session.conversation
            self._collector.idle(shown.key if shown.turns else "", self._window.prompt.text)
        self._look_at_gpu()
        if self._unsaved != (problem := session.chat.saving.problem):
            self._unsaved = problem
            self._window.draw_rows()

    def _look_at_chats(self) -> None:
        window = self._window
        chat = window.session.chat
        if not chat.saving.store.changed():
            return
        if chat.look():
            chat.scroll = window.transcript.place_in_words()
            window.transcript.show(chat.conversation)
            window.transcript.read_on(chat.scroll)
            window.redraw()
        if not window.session.replies:  # a reply is saved twice a second, and a long list takes its time
            window.draw_chats()

    def _look_at_gpu(self) -> None:
        session = self._window.session
        info, before = session.loaded.info, session.gpu.use
        if problem := session.gpu.look(info.gpu if info is not None else "", idle=not session.busy):
            self._window.say(problem)
        if session.gpu.use != before:
            self._window.draw_gauges()

    def _take(self, updates: list[Update]) -> None:
        if not updates:
            if self._undrawn:
                self._draw_steps()
        elif all(update.kind == "reply" for update in updates):
            self._draw_steps()
        else:
            self._took(updates)
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
        self._window.reading.sync()
        if now - self._gauges_at >= 1 / _GAUGES_HZ:
            self._gauges_at = now
            self._window.draw_gauges()
            self._window.draw_rows()

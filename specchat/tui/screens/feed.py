"""The service's updates, onto the chat screen: taken as they arrive, drawn at a rate that it can bear."""

import asyncio
import os
from collections.abc import Callable
from time import monotonic, thread_time

from specchat.service.dispatch import Update
from specchat.tui.collector import Collector
from specchat.tui.screens.window import ChatWindow

_TEXT_HZ = 15
_GAUGES_HZ = 5
_SHARE = min(0.03 * (os.cpu_count() or 1), 0.2)
"""Share of one processor core spent on drawing a running reply: the engine may need all the others."""
_SLOWEST = 0.25
"""Seconds between draws when that share would ask for more."""
_IDLE_CHECK = 1.0
"""Seconds between looks at the GPU, and at garbage."""
_CHATS_CHECK = 0.5
"""Seconds between looks at what other programs saved."""


class Feed:
    """Draws steps by itself; `took` gets all updates of a time with others among them."""

    def __init__(self, window: ChatWindow, took: Callable[[list[Update]], None]) -> None:
        self._window = window
        self._took = took
        self._text_at = self._gauges_at = self._worked = 0.0
        self._put_off = False
        """True if steps are to be drawn later."""
        self._unsaved = ""
        self._collector = Collector()

    def start(self) -> None:
        """Begin once the screen is there."""
        self._window.run_worker(self._follow(), name="updates")
        self._window.set_interval(_IDLE_CHECK, self._check)
        self._window.set_interval(_CHATS_CHECK, self._look_at_chats)

    def asked(self) -> None:
        """A reply was requested: draw it."""
        window = self._window
        window.session.make_way()
        window.session.tuning.outcome = ""
        window.say(window.session.warning, bad=True)
        window.redraw()
        window.transcript.follow()
        window.draw_chats()

    async def _follow(self) -> None:
        session = self._window.session
        async for updates in session.updates():
            if session.replies:
                self._collector.running()
            if updates:
                self._take(updates)

    def _check(self) -> None:
        session = self._window.session
        if not session.busy:
            shown = session.conversation
            self._collector.idle(shown.key if shown.turns else "", self._window.prompt.text)
        self._look_at_gpu()
        if session.calling is not None:  # its seconds go on
            self._window.draw_rows()
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
        if problem := session.gpu.look(info.load.gpu if info is not None else "", idle=not session.busy):
            self._window.say(problem)
        if session.gpu.use != before:
            self._window.draw_gauges()

    def _take(self, updates: list[Update]) -> None:
        if all(update.kind == "reply" for update in updates):
            self._window.notice.happened("reply")
            self._draw_steps()
        else:
            self._took(updates)

    def _draw_steps(self) -> None:
        """Draw what steps brought, at a rate that leaves the processor to the engine."""
        now, worked = monotonic(), thread_time()
        waited = now - self._text_at
        rest = max(min((worked - self._worked) / _SHARE, _SLOWEST), 1 / _TEXT_HZ)
        if waited < rest:
            self._draw_after(rest - waited)
            return
        self._text_at, self._worked = now, worked
        self._window.reading.sync()
        if now - self._gauges_at >= 1 / _GAUGES_HZ:
            self._gauges_at = now
            self._window.draw_gauges()
            self._window.draw_rows()

    def _draw_after(self, seconds: float) -> None:
        """Draw later, unless that is planned."""

        def draw() -> None:
            self._put_off = False
            self._draw_steps()

        if not self._put_off:
            self._put_off = True
            # Textual's timers skip a time that has passed before they begin to wait, and so may never come.
            asyncio.get_running_loop().call_later(seconds, self._window.call_next, draw)

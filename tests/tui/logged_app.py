"""The app over a scripted engine, in a process of its own; after each frame it writes down what the transcript shows.

    python logged_app.py DATABASE DESCRIPTOR [CHAT]

CHAT is the key of the chat to open. A line of DESCRIPTOR is JSON: the time of the frame (monotonic), the prompts' words
in view, key and length of the last reply as far as it is drawn, whether the app has said that saving is late, and for
how many seconds the disk has held up the save that runs.
"""

import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from time import clock_gettime, monotonic, pthread_getcpuclockid

from conftest import LAUNCH, make_app

from specchat.chat.store import Store
from specchat.tui.app import SpecchatApp
from tests.fake import FakeEngine

WORD = re.compile(r"P\d+Q")
"""What marks a prompt."""
REPLIES = (
    "Once there was a fox who kept a lamp in her den. " * 80,
    "```python\n" + "x = [lamp(i) for i in range(10)]\n" * 60 + "```\n\nAnd so on.\n",
    "- a lamp\n- a fox\n" * 90,
    "No.",
)
TOKENS_PER_SECOND = 150.0


class Disk:
    """How long the database takes for the transaction that runs, but for the processor time of the writer's thread."""

    def __init__(self, store: Store) -> None:
        self._begun: tuple[float, int, float] | None = None
        self._transact = store._writer._transact
        store._writer._transact = self._timed  # type: ignore[method-assign]

    @property
    def held_up(self) -> float:
        if (begun := self._begun) is None:
            return 0.0
        since, processor, used = begun
        return monotonic() - since - (clock_gettime(processor) - used)

    def _timed(self, changes: Sequence[Callable[[sqlite3.Connection], None]]) -> None:
        processor = pthread_getcpuclockid(get_ident())
        self._begun = monotonic(), processor, clock_gettime(processor)
        try:
            self._transact(changes)
        finally:
            self._begun = None


def shown(app: SpecchatApp, disk: Disk) -> dict[str, object]:
    """What stands in the transcript now."""
    transcript = app.chat.transcript
    rows = [transcript.render_line(y).text for y in range(transcript.size.height)]
    reply = app.session.last_reply
    return {
        "at": monotonic(),
        "words": WORD.findall("\n".join(rows)),
        "reply": reply.key if reply else "",
        "length": reply.length if reply else 0,
        "late": bool(app.session.warning or app.session.chat.saving.problem),
        "disk": disk.held_up,
    }


def main(path: str, descriptor: str, chat: str = "") -> None:
    engine = FakeEngine(REPLIES, tokens_per_second=TOKENS_PER_SECOND)
    store = Store(Path(path))
    app, disk = make_app(engine, replace(LAUNCH, store=store, chat=chat)), Disk(store)

    def drawn() -> None:
        if app.is_running and app.screen_stack and app.chat.is_mounted:
            os.write(int(descriptor), json.dumps(shown(app, disk)).encode() + b"\n")

    app.post_display_hook = drawn  # type: ignore[method-assign]
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Kill -9 at random moments of random use: what was shown as sent is kept, and a reply but for its last second."""

import fcntl
import json
import os
import pty
import random
import select
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specchat.chat.store import Store
from specchat.clean import clean
from specchat.tui.actions.table import ACTIONS

KILLS = int(os.environ.get("SPECCHAT_KILLS", "2"))
SEED = int(os.environ.get("SPECCHAT_KILLS_SEED", "1"))
LAG_S = 1.0
"""How much older than the screen the saved reply may be on an idle machine with a quick disk: half a second passes
between saves."""
FRESH_EVERY = 10
"""Kills after which the next one begins with no database."""
PROGRAM = Path(__file__).with_name("logged_app.py")

pytestmark = pytest.mark.timeout(300 + 8 * KILLS)


class Typist:
    """Random use of the app as keys."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._prompts = 0
        self.typed: list[str] = []

    def keys(self) -> Iterator[str]:
        """Without end, a few keys that belong together at a time."""
        while True:
            act = self._chance.choices(
                [self._ask, self._half, self._edit, self._list, self._slash, self._key], [40, 4, 8, 14, 4, 30]
            )[0]
            for keys in act():
                self.typed.append(keys)
                yield keys

    def _word(self) -> str:
        self._prompts += 1
        return f"P{self._chance.randrange(10**9)}Q"

    def _ask(self) -> list[str]:
        words = " ".join(["tell me", self._word(), "about the lamp"][self._chance.randrange(2) :])
        return [words, "\r"] if self._chance.random() < 0.8 else [f"\x1b[200~{words}\n{words}\x1b[201~", "\r"]

    def _half(self) -> list[str]:
        return ["some words that are never sent"]

    def _edit(self) -> list[str]:
        return ["\x1b[15~", f" {self._word()}", "\r"]

    def _list(self) -> list[str]:
        """Something with a chat of the list."""
        deeds = (["p"], ["c"], ["d"], ["u"], ["d", "u"], ["r", "a name", "\r"], ["\r"], ["/", "lamp", "\r", "\r"])
        return ["\x02", *["\x1b[B"] * self._chance.randrange(4), *self._chance.choice(deeds), "\x1b"]

    def _slash(self) -> list[str]:
        names = sorted({action.slash for action in ACTIONS} - {"", "quit"})
        return [f"/{self._chance.choice(names)} {self._chance.choice(['', 'a name', 'plain'])}", "\r"]

    def _key(self) -> list[str]:
        stop, again, new, tokens, older, newer = "\x1b", "\x1br", "\x1bn", "\x14", "\x1b[18~", "\x1b[19~"
        return [self._chance.choice([stop, again, again, new, tokens, older, newer, "\x1b[5~", "\x1b[6~"])]


@dataclass
class Life:
    """What a killed app had shown."""

    killed: float = 0.0
    late: float = 0.0
    """The most seconds that this process, which rests but for keys, was held up: so was the app."""
    frames: list[dict[str, Any]] = field(default_factory=list)
    output: bytes = b""


def live(database: Path, chance: random.Random, typist: Typist) -> Life:
    """Start the app, use it, kill it at a random moment: one in six times before the first frame."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    log, written = os.pipe()
    terminal = {"TERM": "xterm-256color", "LINES": "30", "COLUMNS": "120"}
    environment = os.environ | terminal | {"PYTHONPATH": str(PROGRAM.parents[2])}
    command = [sys.executable, str(PROGRAM), str(database), str(written)]
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        pass_fds=[written],
        cwd=database.parent,  # where chats are exported to
    )
    os.close(follower)
    os.close(written)
    life, lines, keys = Life(), b"", typist.keys()
    end = begun + chance.uniform(0.1, 1.0) if chance.random() < 1 / 6 else 0.0
    next_key = 0.0
    try:
        looked = time.monotonic()
        while not end or time.monotonic() < end:
            life.late, looked = max(life.late, time.monotonic() - looked), time.monotonic()
            for ready in select.select([leader, log], [], [], 0.005)[0]:
                if ready == log:
                    lines += os.read(log, 1 << 16)
                else:
                    with suppress(OSError):  # the app has ended
                        life.output = (life.output + os.read(leader, 1 << 16))[-4000:]
            assert process.poll() is None, f"the app ended: {life.output.decode()}"
            assert lines or time.monotonic() < begun + 60, f"no frame came: {life.output!r}"
            if lines and not end:
                end = time.monotonic() + chance.uniform(0.05, 3.0)
            if lines and time.monotonic() >= next_key:
                os.write(leader, next(keys).encode())
                next_key = time.monotonic() + chance.choice([0.01, 0.03, 0.15])
    finally:
        life.killed = time.monotonic()
        process.kill()
        process.wait()
    while read := os.read(log, 1 << 16):
        lines += read
    os.close(log)
    os.close(leader)
    for line in lines.splitlines():
        with suppress(ValueError):  # the last line may be cut
            life.frames.append(json.loads(line))
    return life


def check(database: Path, life: Life) -> float:
    """What must hold after the kill; gives how many seconds the saved reply was behind the screen."""
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        kept = dict(db.execute("SELECT key, text FROM message").fetchall()) if tables(db) else {}
        chats = [key for (key,) in db.execute("SELECT key FROM chat")] if tables(db) else []
    every = "\n".join(kept.values())
    behind, disk = 0.0, max((frame["disk"] for frame in life.frames), default=0.0)
    for frame in life.frames:
        for word in [] if frame["late"] else frame["words"]:
            assert word in every, f"{word} was shown as sent and is not there"
        age = life.killed - frame["at"]
        saved = len(clean(kept.get(frame["reply"], "")))
        if frame["reply"] and not frame["late"] and frame["length"] > saved:
            behind = max(behind, age)
            assert age < LAG_S + 4 * life.late + disk, (
                f"{age:.2f} s before the kill {frame['length']} characters were shown, {saved} are kept"
            )
    store = Store(database)
    shown = 0
    for key in chats:
        with suppress(KeyError):  # deleted
            chat = store.load(key)[0]
            assert all(reply.ended for turn in chat.every_turn() for reply in turn.replies)
            shown += sum(1 + len(turn.replies) for turn in chat.every_turn())
            assert sum(1 + len(turn.replies) for turn in chat.every_turn()) == len(store.messages(key))
    assert store.close()
    return behind


def tables(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,)


def test_nothing_that_was_shown_is_lost_by_a_kill(tmp_path: Path) -> None:
    behind, words, frames = [], set(), 0
    for number in range(KILLS):
        seed = SEED + number
        chance = random.Random(seed)
        typist = Typist(chance)
        database = tmp_path / f"chats-{number // FRESH_EVERY}.db"
        life = live(database, chance, typist)
        try:
            behind.append(check(database, life) if database.exists() else 0.0)
        except BaseException as error:
            error.add_note(f"SPECCHAT_KILLS_SEED={seed}; last keys {typist.typed[-12:]}; database {database}")
            raise
        words |= {word for frame in life.frames for word in frame["words"]}
        frames += len(life.frames)
    print(f"{KILLS} kills, {frames} frames, {len(words)} prompts shown; replies at most {max(behind):.2f} s behind")
    assert words

"""The one writer: changes go into the database in order, in a thread of its own, tried again until they do."""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic
from typing import TypeGuard

from specchat.chat import connection
from specchat.chat.schema import in_words, is_locked

RETRY_S = 1.0
"""Seconds between attempts while the database takes nothing."""
LOCK_TOLD_S = 0.1
"""Seconds of waiting after which a lock is reported."""

Change = Callable[[sqlite3.Connection], None]


class Writer:
    """Takes changes without waiting. One that still waits is replaced by a later one of its `slot`."""

    def __init__(self, db: sqlite3.Connection, path: Path | None = None, tidy: Change = lambda _: None) -> None:
        """`tidy` is done first where the database takes it, and left to a later start where not."""
        self._connection = db
        self._path = path
        self._tidy = tidy
        db.execute(f"PRAGMA busy_timeout = {int(LOCK_TOLD_S * 1e3)}")
        self._waiting: list[tuple[str, Change, Event]] = []
        self._condition = Condition()
        self._closing = False
        self.problem = ""
        """Why changes cannot be saved at the moment, in a sentence; empty when they are."""
        self.lock = ""
        """Cause of a delayed change that may still be saved, in a sentence."""
        self._thread = Thread(target=self._run, name="chats writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Changes that are not saved yet."""
        return len(self._waiting)

    def put(self, change: Change, slot: str = "") -> Event:
        """Save a change soon; the event is set once it is safe from the death of this process."""
        done = Event()
        with self._condition:
            at = next((i for i, (taken, _, _) in enumerate(self._waiting) if slot and taken == slot), None)
            if at is None:
                self._waiting.append((slot, change, done))
            else:
                self._waiting[at] = (slot, change, done)
            self._condition.notify()
        return done

    def close(self, timeout: float) -> bool:
        """Save what waits, for up to `timeout` seconds, and close; False when something could not be saved."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._connection.close()
        return not self._waiting

    def _run(self) -> None:
        with suppress(sqlite3.Error):
            self._transact([self._tidy])
        self.lock = ""
        while True:
            with self._condition:
                while not self._waiting and not self._closing:
                    self._condition.wait()
                batch = list(self._waiting)
            if not batch:
                return
            saved = self._save(batch)
            self.lock = ""  # after the problem that came of it, or the disk would seem slow in between
            if saved:
                with self._condition:
                    safe = {id(done) for _, _, done in batch}
                    self._waiting = [entry for entry in self._waiting if id(entry[2]) not in safe]
                for _, _, done in batch:
                    done.set()
            else:
                with self._condition:
                    if self._closing:
                        return
                    self._condition.wait(RETRY_S)

    def _save(self, batch: list[tuple[str, Change, Event]]) -> bool:
        try:
            self._transact([change for _, change, _ in batch])
        except Exception as error:
            if _of_file(error):
                self.problem = in_words(error, self._path)
                return False
            # one of them can never be saved, such as a message of a chat that another copy removed
            for _, change, _ in batch:
                try:
                    self._transact([change])
                except Exception as error:
                    if _of_file(error):
                        self.problem = in_words(error, self._path)
                        return False
                    logging.getLogger(__name__).warning("a change cannot be saved and is left out: %s", error)
        self.problem = ""
        return True

    def _transact(self, changes: Sequence[Change]) -> None:
        try:
            self._begin()
            for change in changes:
                change(self._connection)
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _begin(self) -> None:
        """Begin a transaction, waiting for another program's lock."""
        until = monotonic() + connection.BUSY_S
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self.lock = ""
                return
            except sqlite3.OperationalError as error:
                if not is_locked(error) or monotonic() > until:
                    raise
                self.lock = in_words(error, self._path)


def _of_file(error: Exception) -> TypeGuard[sqlite3.DatabaseError]:
    """True if the file is at fault, for now or for good, rather than what was to be saved."""
    return type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError)

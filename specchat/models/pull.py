"""Fetching the models of a pair: what it takes is known first, then it runs, here or beside a chat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Literal

from specchat.engine.errors import EngineError
from specchat.engine.fetch.answer import Cancelled
from specchat.engine.fetch.download import Download, Progress, check_room, free_room
from specchat.engine.fetch.listing import Listing, RemoteFile, look_up, missing, needed
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource

State = Literal["asking", "ready", "running", "stopping", "stopped", "failed", "done"]


@dataclass(frozen=True)
class RepositoryPart:
    """One repository of an order, with the files to have."""

    listing: Listing
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Order:
    """Bytes to fetch: `size` is all of it, `missing` what is not here, `free` the room on the disk."""

    hub: Hub
    parts: tuple[RepositoryPart, ...]
    missing: int
    free: int

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def licences(self) -> str:
        """Licences of all parts, each once."""
        return ", ".join(dict.fromkeys(part.listing.licence or "not stated" for part in self.parts))

    @property
    def gated(self) -> tuple[str, ...]:
        """The repositories whose terms have to be accepted."""
        return tuple(part.listing.repo for part in self.parts if part.listing.gated)


def order(hub: Hub, sources: Sequence[ModelSource], file: str | None = None) -> Order:
    """Ask the hub what the repositories of `sources` take; `file` names one of several GGUF files.

    Raises:
        EngineError: one cannot be reached, or has nothing that is read.
    """
    unique = dict.fromkeys((s.repo, s.revision, file or s.file) for s in sources if s.repo)
    parts, listed = [], set[tuple[str, RemoteFile]]()
    for repo, revision, chosen in unique:
        listing = look_up(hub, repo, revision)
        files = [file for file in needed(listing, chosen) if (listing.commit, file) not in listed]
        listed |= {(listing.commit, file) for file in files}  # two GGUF files of a repository may share a tower
        parts.append(RepositoryPart(listing, tuple(files)))
    lacking = sum(missing(hub, part.listing, part.files) for part in parts)
    return Order(hub, tuple(parts), lacking, free_room(hub))


class Pull:
    """A running order: one repository after another, the files of each in parallel."""

    def __init__(self, order: Order, notify: Callable[[Progress], None] = lambda _: None) -> None:
        self._order, self._notify = order, notify
        self._running: Download | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Stop soon; what was fetched is kept."""
        self._cancelled = True
        if self._running is not None:
            self._running.cancel()

    def run(self) -> tuple[Path, ...]:
        """Fetch everything; gives the folder of each part.

        Raises:
            Cancelled: see `cancel`.
            EngineError: why it failed. What was fetched is kept.
        """
        folders = []
        before = 0
        if self._order.missing > self._order.free:
            for part in self._order.parts:
                check_room(self._order.hub, part.listing, part.files)
        for part in self._order.parts:

            def notify(now: Progress, before: int = before) -> None:
                self._notify(Progress(before + now.done, self._order.size, now.rate))

            self._running = Download(self._order.hub, part.listing, part.files, notify)
            if self._cancelled:
                raise Cancelled
            folders.append(self._running.run())
            before += part.size
        return tuple(folders)


class Task:
    """The fetching of a pair's models in threads of its own. Its fields are polled by the code that shows it.

    `order` is there once the hub has answered, `error` where it failed. Nothing is fetched before `start`.
    """

    def __init__(self, name: str, hub: Hub, sources: Sequence[ModelSource], lack: str = "") -> None:
        """`lack` says what this installation needs to run the models."""
        self.name, self.lack = name, lack
        self.state: State = "asking"
        self.order: Order | None = None
        self.progress = Progress(0, 0, 0.0)
        self.error = ""
        self._hub, self._sources = hub, tuple(sources)
        self._pull: Pull | None = None
        self._spawn(self._ask)

    @property
    def busy(self) -> bool:
        return self.state in ("running", "stopping")

    def ask_again(self) -> None:
        """Ask the hub once more, where it did not answer."""
        if self.state == "failed" and self.order is None:
            self.state, self.error = "asking", ""
            self._spawn(self._ask)

    def start(self) -> None:
        """Fetch what was ordered, or go on with it."""
        if self.order is not None and not self.busy:
            self.state, self.error = "running", ""
            self._pull = Pull(self.order, self._took)
            self._spawn(self._run)

    def stop(self) -> None:
        """Stop soon; `start` goes on where it was."""
        if self.state == "running" and self._pull is not None:
            self.state = "stopping"
            self._pull.cancel()

    def _took(self, progress: Progress) -> None:
        self.progress = progress

    def _ask(self) -> None:
        self.order = order(self._hub, self._sources)
        self.state = "ready"

    def _run(self) -> None:
        assert self._pull is not None
        self._pull.run()
        self.state = "done"

    def _spawn(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Cancelled:
                self.state = "stopped"
            except EngineError as error:
                self.state, self.error = "failed", error.message
            except Exception as error:
                self.state, self.error = "failed", f"{self.name} could not be downloaded: {error}"

        Thread(target=guarded, daemon=True, name="pull").start()

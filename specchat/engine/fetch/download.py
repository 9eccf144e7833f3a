"""Downloads a model: several files at a time, with progress, and visible in the cache only when complete."""

import os
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Event, Lock, Thread
from time import monotonic

from specchat.engine.errors import EngineError
from specchat.engine.fetch.answer import Cancelled
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.listing import Listing, RemoteFile, missing
from specchat.engine.fetch.source import Hub
from specchat.engine.fetch.transfer import fetch

MAX_PARALLEL = 4
PROGRESS_INTERVAL_S = 0.1
RATE_WINDOW_S = 5.0


@dataclass(frozen=True)
class Progress:
    """Bytes `done` of `total`, and the recent rate in bytes a second; 0 while none arrive."""

    done: int
    total: int
    rate: float

    @property
    def fraction(self) -> float:
        return self.done / self.total if self.total else 1.0

    @property
    def left_s(self) -> float | None:
        """Seconds left at this rate; None while it is 0."""
        return (self.total - self.done) / self.rate if self.rate else None


class Download:
    """Downloads `files` of a repository; `notify` receives progress from any thread, at most ten times a second."""

    def __init__(
        self,
        hub: Hub,
        listing: Listing,
        files: Sequence[RemoteFile],
        notify: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._hub, self._listing, self._files, self._notify = hub, listing, tuple(files), notify
        self._total = sum(file.size for file in files)
        self._done = 0
        self._lock = Lock()
        self._marks: deque[tuple[float, int]] = deque()
        self._notified_at = 0.0
        self._halted = Event()
        """Set by the user, or by the first file that fails."""

    def cancel(self) -> None:
        """Stop soon; downloaded bytes are kept, and a later download resumes."""
        self._halted.set()

    def run(self) -> Path:
        """Download missing files, and return the folder with all of them.

        Raises:
            Cancelled: see `cancel`.
            EngineError: "download": with the reason. Downloaded bytes are kept, but not visible as a model.
        """
        try:
            check_room(self._hub, self._listing, self._files)
            self._fetch()
            return self._register()
        except Cancelled:
            raise
        except Exception as error:
            raise failure(self._hub, self._listing.repo, error, self._done > 0) from None

    def _fetch(self) -> None:
        waiting = deque(sorted(self._files, key=lambda file: -file.size))
        ended: Queue[BaseException | None] = Queue()

        def work() -> None:
            try:
                while file := _next(waiting):
                    fetch(self._hub, self._listing, file, self._count, self._halted)
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)

        threads = min(MAX_PARALLEL, len(waiting))
        for number in range(threads):  # no pool: the program would wait for it at its end
            Thread(target=work, daemon=True, name=f"download-{number}").start()
        failed: BaseException | None = None
        try:
            for _ in range(threads):
                if (error := ended.get()) is not None:
                    self._halted.set()
                    failed = failed or error
        finally:
            self._halted.set()
        if failed is not None:
            raise failed

    def _count(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = monotonic()
            if now - self._notified_at < PROGRESS_INTERVAL_S and self._done < self._total:
                return
            self._notified_at = now
            self._marks.append((now, self._done))
            while now - self._marks[0][0] > RATE_WINDOW_S:
                self._marks.popleft()
            since, had = self._marks[0]
            rate = max(self._done - had, 0) / (now - since) if now > since else 0.0
            progress = Progress(self._done, self._total, rate)
        self._notify(progress)

    def _register(self) -> Path:
        hub, listing = self._hub, self._listing
        folder = hub.snapshot(listing.repo, listing.commit)
        for file in self._files:
            if not hub.linked(listing.repo, listing.commit, file.name, file.digest):
                _link(hub.folder(listing.repo), folder / file.name, file.digest)
        revision = listing.revision or "main"
        if revision != listing.commit:
            _write(hub.folder(listing.repo) / "refs" / revision, listing.commit)
        return folder


def _next(waiting: deque[RemoteFile]) -> RemoteFile | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _link(root: Path, link: Path, digest: str) -> None:
    """Make `link` in the folder of a repository, `root`, point to the blob of this hash."""
    link.parent.mkdir(parents=True, exist_ok=True)
    folder, blob = link.parent.resolve(), root.resolve() / "blobs" / digest
    if not folder.is_relative_to(root.resolve()):
        raise EngineError("download", f"{link.parent} leads out of {root}. Delete it, and download the model again.")
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(os.path.relpath(blob, folder))
    except OSError:  # a system without links
        shutil.copyfile(blob, link)


def _write(ref: Path, commit: str) -> None:
    ref.parent.mkdir(parents=True, exist_ok=True)
    new = ref.with_name(f".{ref.name[:100]}.{os.getpid()}")
    new.write_text(commit, encoding="ascii")
    new.replace(ref)


def free_room(hub: Hub) -> int:
    """Free bytes on the cache's disk."""
    folder = hub.cache.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_room(hub: Hub, listing: Listing, files: Sequence[RemoteFile]) -> None:
    """Check that the disk has room for the missing bytes of `files`.

    Raises:
        EngineError: "download": it is too full.
    """
    needs, free = missing(hub, listing, files), free_room(hub)
    if needs > free:
        raise EngineError(
            "download",
            f"The disk is too full for {listing.repo}: {_bytes(needs)} are missing, {_bytes(free)} are free "
            f"at {hub.cache}. Free some, or set HF_HOME to a roomier place.",
        )


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count:,} bytes"

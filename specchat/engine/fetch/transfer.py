"""Downloads one file: resumes a partial one, retries, and verifies the hash."""

from collections.abc import Callable
from hashlib import sha1, sha256
from pathlib import Path
from threading import Event

from specchat.engine.errors import EngineError
from specchat.engine.fetch.answer import Answer, Cancelled, Refused
from specchat.engine.fetch.listing import Listing, RemoteFile
from specchat.engine.fetch.source import Hub

MAX_FAILURES = 5
"""Failures in a row without a new byte, after which the download fails."""
RETRY_S = 1.0
MAX_RETRY_S = 30.0
"""Seconds before a retry by default, and at most if the hub requests a pause."""
POLL_S = 0.2
"""Seconds between checks of a file that another program downloads."""
_TRANSIENT = (408, 429, 500, 502, 503, 504)


def fetch(hub: Hub, listing: Listing, file: RemoteFile, count: Callable[[int], None], cancelled: Event) -> None:
    """Bring `file` into the cache's blobs; of several programs one downloads it and the others wait.

    `count` receives the number of new bytes, negative where some are discarded.

    Raises:
        Cancelled: `cancelled` was set.
        EngineError: "download": the file differs from the hub's announcement.
        Exception: from the HTTP library or the disk; see `failures.failure`.
    """
    from filelock import FileLock, Timeout

    blob = hub.folder(listing.repo) / "blobs" / file.digest
    part, counted = hub.partial(listing.repo, file.digest), 0

    def have(size: int) -> None:
        nonlocal counted
        count(size - counted)
        counted = size

    if hub.linked(listing.repo, listing.commit, file.name, file.digest):
        have(file.size)
        return
    if cancelled.is_set():
        raise Cancelled
    have(_size(blob) or _size(part))
    lock_file = hub.lock(listing.repo, file.digest)
    for folder in (blob.parent, lock_file.parent):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(lock_file), mode=0o664)
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            have(_size(part))
            if cancelled.wait(POLL_S):
                raise Cancelled from None
    try:
        # Another program may have put the blob there without verifying its hash.
        if not blob.is_file() or not _verified(file, blob, cancelled):
            _complete(hub, listing, file, part, have, cancelled)
            if not _verified(file, part, cancelled):
                raise EngineError(
                    "download",
                    f"{file.name} of {listing.repo} came damaged: its hash is not the one announced. It was thrown "
                    "away; try again.",
                )
            part.replace(blob)
    finally:
        lock.release()
    have(file.size)


def _complete(
    hub: Hub, listing: Listing, file: RemoteFile, part: Path, have: Callable[[int], None], cancelled: Event
) -> None:
    if _size(part) > file.size:
        part.unlink()
    failed = 0
    while not part.exists() or _size(part) < file.size:
        before = _size(part)
        pause = RETRY_S
        try:
            _resume(hub, listing, file, part, have, cancelled)
            cut: Exception = EngineError("download", f"{hub.host} sent {file.name} of {listing.repo} only in part.")
        except Cancelled:
            raise
        except Refused as error:
            if error.status not in _TRANSIENT:
                raise
            cut, pause = error, RETRY_S if error.pause is None else min(error.pause, MAX_RETRY_S)
        except TimeoutError as error:
            cut = error
        except (OSError, EngineError):  # local errors such as a full disk; those of the network are wrapped
            raise
        except Exception as error:
            cut = error
        failed = 1 if _size(part) > before else failed + 1
        if _size(part) < file.size:
            if failed > MAX_FAILURES:
                raise cut
            if cancelled.wait(pause):
                raise Cancelled


def _resume(
    hub: Hub, listing: Listing, file: RemoteFile, part: Path, have: Callable[[int], None], cancelled: Event
) -> None:
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(listing.repo, file.name, revision=listing.commit, endpoint=hub.endpoint)
    size = _size(part)
    headers = {"Range": f"bytes={size}-"} if size else {}
    with Answer(hub, url, headers=headers, cancelled=cancelled) as answer, open(part, "ab") as out:
        if size and answer.status != 206:  # the hub ignored the range
            out.truncate(0)
            have(size := 0)
        for piece in answer.pieces():
            if size + len(piece) > file.size:
                raise EngineError("download", f"{hub.host} sent more of {file.name} than it announced. Try again.")
            out.write(piece)
            have(size := size + len(piece))


def _verified(file: RemoteFile, path: Path, cancelled: Event) -> bool:
    """True if the file at `path` has the hash of `file`; one with another hash is deleted."""
    digest = sha256() if len(file.digest) == 64 else sha1(b"blob %d\0" % file.size)
    with open(path, "rb") as data:
        while piece := data.read(1 << 20):
            if cancelled.is_set():
                raise Cancelled
            digest.update(piece)
    if digest.hexdigest() == file.digest:
        return True
    path.unlink()
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

"""One file from a hub: what is there already is kept, what is cut goes on, and what came is checked."""

from collections.abc import Callable
from hashlib import sha1, sha256
from pathlib import Path
from threading import Event

from specchat.engine.errors import EngineError
from specchat.engine.fetch.answer import Answer, Cancelled, Refused
from specchat.engine.fetch.listing import Listing, RemoteFile
from specchat.engine.fetch.source import Hub

TRIES = 5
"""Cuts in a row, without a byte between them, after which a file is given up."""
PAUSE_S = 1.0
"""Seconds before another try, where the hub asks for no other number."""
LONGEST_PAUSE_S = 30.0
LOOK_S = 0.2
"""Seconds between looks at a file that another program is fetching."""
_PASSING = (408, 429, 500, 502, 503, 504)
"""Answers that may be others in a moment."""


def fetch(hub: Hub, listing: Listing, file: RemoteFile, gained: Callable[[int], None], cancelled: Event) -> None:
    """Have `file` in the cache's blobs, whoever fetches it: of several programs one does, and the others wait for it.

    `gained` is told of bytes as they come, of fewer than none where some are thrown away.

    Raises:
        Cancelled: `cancelled` was set.
        EngineError: "download": the file is not what the hub announced.
        Exception: whatever the library or the disk has to say; see `failures.failure`.
    """
    from filelock import FileLock, Timeout

    blob = hub.folder(listing.repo) / "blobs" / file.digest
    part, told = hub.partial(listing.repo, file.digest), 0

    def have(size: int) -> None:
        nonlocal told
        gained(size - told)
        told = size

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
            if cancelled.wait(LOOK_S):
                raise Cancelled from None
    try:
        # What another program put there has not been compared with its hash.
        if not blob.is_file() or not _sound(file, blob, cancelled):
            _complete(hub, listing, file, part, have, cancelled)
            if not _sound(file, part, cancelled):
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
    """Make `part` as long as the file is."""
    if _size(part) > file.size:
        part.unlink()
    failed = 0
    while not part.exists() or _size(part) < file.size:
        before = _size(part)
        pause = PAUSE_S
        try:
            _read_on(hub, listing, file, part, have, cancelled)
            cut: Exception = EngineError("download", f"{hub.host} sent {file.name} of {listing.repo} only in part.")
        except Cancelled:
            raise
        except Refused as error:
            if error.status not in _PASSING:
                raise
            cut, pause = error, PAUSE_S if error.pause is None else min(error.pause, LONGEST_PAUSE_S)
        except TimeoutError as error:
            cut = error
        except (OSError, EngineError):  # of this machine, such as a full disk; those of the network are wrapped
            raise
        except Exception as error:
            cut = error
        failed = 1 if _size(part) > before else failed + 1
        if _size(part) < file.size:
            if failed > TRIES:
                raise cut
            if cancelled.wait(pause):
                raise Cancelled


def _read_on(
    hub: Hub, listing: Listing, file: RemoteFile, part: Path, have: Callable[[int], None], cancelled: Event
) -> None:
    """Append to `part` what one answer of the hub brings."""
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(listing.repo, file.name, revision=listing.commit, endpoint=hub.endpoint)
    size = _size(part)
    headers = {"Range": f"bytes={size}-"} if size else {}
    with Answer(hub, url, headers=headers, cancelled=cancelled) as answer, open(part, "ab") as out:
        if size and answer.status != 206:  # all of it came, not the rest
            out.truncate(0)
            have(size := 0)
        for piece in answer.pieces():
            if size + len(piece) > file.size:
                raise EngineError("download", f"{hub.host} sent more of {file.name} than it announced. Try again.")
            out.write(piece)
            have(size := size + len(piece))


def _sound(file: RemoteFile, path: Path, cancelled: Event) -> bool:
    """Whether the hash of what is at `path` is that of `file`; what has another is thrown away."""
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

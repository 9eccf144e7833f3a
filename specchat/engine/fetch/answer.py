"""Reads a hub's responses within bounds in a thread, so that no caller blocks on a slow link."""

from collections.abc import Iterator, Mapping
from queue import Empty, Full, Queue
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any

from specchat.engine.errors import EngineError
from specchat.engine.fetch.source import Hub

HEAD_S = 60.0
"""Seconds until a response must begin, redirects included."""
SILENCE_S = 10.0
"""Seconds without a byte after which a connection counts as lost."""
LISTING_S = 60.0
LISTING_BYTES = 32 << 20
"""Bounds of a listing; one of 100,000 files takes about 25 MB."""
MAX_REDIRECTS = 10
_MAX_QUEUED = 4
"""Pieces read ahead."""
_POLL_S = 0.05
NEVER = Event()
"""Never set."""


class Cancelled(Exception):
    """The user cancelled; downloaded bytes are kept."""


class Refused(Exception):
    """The hub answered with an error.

    `status` is HTTP's, `code` the hub's own or "", `pause` the requested wait in seconds or None.
    """

    def __init__(self, status: int, code: str, pause: float | None) -> None:
        super().__init__(f"error {status}")
        self.status, self.code, self.pause = status, code, pause


class Answer:
    """The response to a request: entering waits for its head, leaving is immediate.

    Raises Cancelled once `cancelled` is set, TimeoutError after `within_s` seconds, Refused for an error, and the HTTP
    library's own exceptions; see `failures.failure`.
    """

    def __init__(
        self,
        hub: Hub,
        url: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        cancelled: Event = NEVER,
        within_s: float = float("inf"),
    ) -> None:
        self._hub, self._url, self._params, self._headers = hub, url, params, dict(headers or {})
        self._cancelled, self._end = cancelled, monotonic() + within_s
        self._queue: Queue[Any] = Queue(_MAX_QUEUED)
        self._left = Event()
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def __enter__(self) -> "Answer":
        Thread(target=self._read, name="answer", daemon=True).start()
        try:
            self.status, self.headers = self._next(min(self._end, monotonic() + HEAD_S))
            if self.status not in (200, 206):
                pause = self.headers.get("Retry-After", "")
                code = self.headers.get("X-Error-Code", "")
                raise Refused(self.status, code, float(pause) if pause.isascii() and pause.isdigit() else None)
            if (encoding := self.headers.get("Content-Encoding", "identity")) != "identity":
                words = f"{self._hub.host} answered in {encoding[:20]!a}, and was asked for plain bytes."
                raise EngineError("download", words)
        except BaseException:
            self._left.set()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()

    def pieces(self) -> Iterator[bytes]:
        """The body in pieces of at most 64 KiB."""
        while (piece := self._next(self._end)) is not None:
            yield piece

    def body(self, most: int) -> bytes:
        """The whole body.

        Raises:
            EngineError: "download": it has more than `most` bytes.
        """
        whole = bytearray()
        for piece in self.pieces():
            whole += piece
            if len(whole) > most:
                raise EngineError(
                    "download", f"{self._hub.host} answered with more than {most >> 20} MB, which is not read."
                )
        return bytes(whole)

    def _next(self, end: float) -> Any:
        while True:
            if self._cancelled.is_set():
                raise Cancelled
            if monotonic() > end:
                raise TimeoutError
            try:
                came = self._queue.get(timeout=_POLL_S)
            except Empty:
                continue
            if isinstance(came, BaseException):
                raise came
            return came

    def _put(self, thing: object) -> bool:
        """Queue a thing; False once the response was left."""
        while not self._left.is_set():
            try:
                self._queue.put(thing, timeout=1.0)
            except Full:
                continue
            return True
        return False

    def _read(self) -> None:
        try:
            self._stream()
        except BaseException as error:
            self._put(error)
        else:
            self._put(None)

    def _stream(self) -> None:
        from huggingface_hub import get_session
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        session = get_session()
        headers = {**build_hf_headers(), "Accept-Encoding": "identity", **self._headers}
        request = session.build_request("GET", self._url, params=self._params, headers=headers, timeout=SILENCE_S)
        for _ in range(MAX_REDIRECTS):
            # Redirects are followed here, because the library would read their whole bodies.
            answer = session.send(request, stream=True, follow_redirects=False)
            try:
                if answer.next_request is None:
                    if self._put((answer.status_code, answer.headers)):
                        for piece in answer.iter_raw():
                            if not self._put(piece):
                                break
                    return
                request = answer.next_request
            finally:
                answer.close()
        raise EngineError("download", f"{self._hub.host} sends a request from one address to the next without end.")

"""Sentences for what goes wrong between here and a server."""

import json
from typing import Any

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ErrorKind

BUSY = (429, 503)
"""Statuses of a server that may answer later."""
_CONTEXT = ("context", "max_model_len", "maximum input length", "too long")
"""Words of a server that refuses a prompt for its length."""


class ServerError(EngineError):
    """A server cannot be reached, or answered with `status`; 0 without an answer."""

    def __init__(self, message: str, kind: ErrorKind = "server", status: int = 0) -> None:
        super().__init__(kind, message)
        self.status = status


def refusal(url: str, status: int, body: bytes, key: str) -> ServerError:
    """The error of an answer with a `status` of 400 or more; `key` is where the key that was sent is kept."""
    said = _said(body)
    quoted = f": {said}" if said else ""
    if status in (401, 403):
        sent = f"the key in {key}" if key else "requests without a key; name its variable as key_env"
        return ServerError(f"{url} refuses {sent} ({status}{quoted}).", "config", status)
    if status == 404:
        return ServerError(f"{url} has no such page or model ({status}{quoted}). Check url and model.", "model", status)
    if status == 400 and any(word in said.lower() for word in _CONTEXT):
        return ServerError(f"The chat does not fit the server's context: {said}", "context", status)
    if status in BUSY:
        return ServerError(f"{url} is busy ({status}{quoted}). Try again later.", "server", status)
    kind: ErrorKind = "request" if status in (400, 413, 422) else "server"
    return ServerError(f"{url} answered with error {status}{quoted}.", kind, status)


def error_in(data: Any) -> str:
    """The words of an error that a server sent in its stream or body; empty where it is none."""
    if not isinstance(data, dict):
        return ""
    error = data.get("error") or (data.get("message") if data.get("object") == "error" else None)
    if isinstance(error, dict):
        error = error.get("message") or error.get("type") or "an error without words"
    return one_line(str(error)).rstrip(".") if error else ""


def _said(body: bytes) -> str:
    """The server's own words; empty for a web page. Triton sends an error as an event of a stream."""
    body = body.removeprefix(b"data:")
    try:
        data = json.loads(body)
    except ValueError:
        return "" if b"<" in body[:200] else one_line(body.decode("utf-8", "replace")).rstrip(".")
    detail = data.get("detail") if isinstance(data, dict) else None
    return error_in(data) or (one_line(detail).rstrip(".") if isinstance(detail, str) else "")

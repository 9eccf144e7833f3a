"""Access: hosts, origins, keys and sizes are checked before a request is read."""

import hmac
import ipaddress
import json
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request

from specchat.clean import valid
from specchat.serve.errors import ApiError

MAX_BODY = 32 << 20
"""Bytes of a request."""
MAX_DEPTH = 200
"""Objects and lists in each other, which others who read or repeat them have to bear as well."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
LOCAL_PAGES = Middleware(
    CORSMiddleware,
    allow_origin_regex=r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?",
    allow_methods=("GET", "POST", "DELETE"),
    allow_headers=("*",),
)
"""Lets the browser give answers to pages that this machine serves, such as a web interface on another port."""


@dataclass(frozen=True)
class AccessCheck:
    """`host` is the address that is listened to; `key` is empty where none is needed."""

    host: str
    key: str = ""

    def check(self, request: Request) -> None:
        """Raises ApiError for a request from a page of another site, or without the key.

        A name that was made to lead here (DNS rebinding) is told by the Host header.
        """
        if is_local(self.host) and _name(f"//{request.headers.get('host', '')}") not in LOCAL_NAMES:
            raise ApiError(403, "The Host header has to name this machine: use 127.0.0.1 or localhost.")
        origin = request.headers.get("origin")
        if origin is not None and _name(origin) not in LOCAL_NAMES:
            raise ApiError(403, "Pages of other sites are refused.")
        # Headers come as Latin-1, whatever their bytes are.
        if self.key and not hmac.compare_digest(_key(request).encode("latin-1"), os.fsencode(self.key)):
            raise ApiError(401, "The key is missing or wrong: send it as a Bearer token or as x-api-key.")

    async def body(self, request: Request) -> Any:
        """The JSON of a request.

        Raises:
            ApiError: it is too large or no JSON.
        """
        long = ApiError(413, f"A request may have at most {MAX_BODY >> 20} MiB.")
        if int(request.headers.get("content-length", 0)) > MAX_BODY:
            raise long
        received = bytearray()
        async for chunk in request.stream():
            received += chunk
            if len(received) > MAX_BODY:
                raise long
        try:
            found = json.loads(received)
        except (ValueError, RecursionError):
            raise ApiError(400, "The body is not JSON.") from None
        if not isinstance(found, dict):
            raise ApiError(400, "The body has to be a JSON object.")
        return _usable(found)


def _usable(found: dict[str, Any]) -> dict[str, Any]:
    """JSON that answers can repeat: with U+FFFD for halves of surrogate pairs.

    Raises:
        ApiError: it is nested too deeply, or a number in it is not finite.
    """
    inner: list[Any] = [found]
    for _ in range(MAX_DEPTH + 1):
        around = (one.values() if isinstance(one, dict) else one for one in inner)
        inner = [one for some in around for one in some if isinstance(one, dict | list)]
    if inner:
        raise ApiError(400, f"The body is nested more than {MAX_DEPTH} deep.")
    try:
        text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ApiError(400, "The body has a number that is not finite: NaN, or one beyond 1.8e308.") from None
    return found if (whole := valid(text)) == text else json.loads(whole)


def is_local(host: str) -> bool:
    """True for an address that other machines cannot reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client(request: Request) -> str:
    """A name of the client, for fairness: its key, else its address."""
    return _key(request) or (request.client.host if request.client else "")


def _key(request: Request) -> str:
    bearer = request.headers.get("authorization", "")
    return bearer[7:] if bearer.lower().startswith("bearer ") else request.headers.get("x-api-key", "")


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""

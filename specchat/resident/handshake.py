"""Identity of the other end of a connection, and the first line in each direction.

That line is JSON, so that engines of other versions understand it too.
"""

import json
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

MAX_BYTES = 1 << 16
PROTOCOL = 1


def encoded(**known: object) -> bytes:
    """A line that tells what is `known`."""
    return json.dumps({"specchat": PROTOCOL, **known}).encode() + b"\n"


def parsed(data: bytes) -> dict[str, Any] | None:
    """The contents of a line; None where it is not one of ours."""
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("specchat") == PROTOCOL else None


def number(found: dict[str, Any], name: str) -> float:
    """A number that is not negative, else 0."""
    value = found.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0.0


def text(found: dict[str, Any], name: str) -> str:
    """A text, else an empty one."""
    value = found.get(name)
    return value if isinstance(value, str) else ""


def peer(link: socket.socket) -> int | None:
    """The user id at the other end of a connected socket; None where the system does not tell."""
    with suppress(OSError, struct.error):
        if sys.platform == "linux":
            return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
        if sys.platform == "darwin":  # struct xucred by LOCAL_PEERCRED at SOL_LOCAL
            return int(struct.unpack_from("II", link.getsockopt(0, 1, 76))[1])
    return None

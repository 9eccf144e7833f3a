"""Messages on a byte stream between processes of specchat: a header, then a pickle.

Both ends belong to one user, and a pickle may name nothing but this program's own messages and plain values. The header
names the reply of a step, so that a process between the two can pass steps on without unpickling them.
"""

import io
import pickle
import struct
from collections.abc import Iterator
from typing import IO, Any

from specchat.dataclass import dataclass

HEADER = struct.Struct("<Iq")
"""Bytes of the pickle, and the reply of a step or NO_REPLY."""
NO_REPLY = -1
MAX_BYTES = 256 << 20
"""Limit of a message: a longer length is not one of ours."""
_PLAIN = {
    "builtins": {"complex", "frozenset", "range", "set", "slice"},
    "pathlib": {"Path", "PosixPath", "WindowsPath"},
    "pathlib._local": {"Path", "PosixPath", "WindowsPath"},
}
_OWN = "specchat."


@dataclass(frozen=True)
class Sealed:
    """A step of `reply` as it came, with its header."""

    reply: int
    frame: bytes


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = None
        if module.startswith(_OWN) or name in _PLAIN.get(module, ()):
            found = super().find_class(module, name)
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a message")
        return found


def framed(message: object, reply: int = NO_REPLY) -> bytes:
    """A message with its header."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(data), reply) + data


def opened(data: bytes) -> Any:
    """The message in a pickle.

    Raises:
        pickle.UnpicklingError: it names something else than messages.
    """
    return _Unpickler(io.BytesIO(data)).load()


def write(stream: IO[bytes], message: object, reply: int = NO_REPLY) -> None:
    """Write one message and flush.

    Raises:
        OSError, ValueError: the other end is gone or the stream is closed.
    """
    stream.write(framed(message, reply))
    stream.flush()


def read(stream: IO[bytes], sealed: bool = False) -> Iterator[Any]:
    """Messages until the stream ends; an incomplete last one is dropped. Steps stay `Sealed` if asked for.

    Raises:
        pickle.UnpicklingError: the stream is not ours.
    """
    while len(head := stream.read(HEADER.size)) == HEADER.size:
        length, reply = HEADER.unpack(head)
        if length > MAX_BYTES:
            raise pickle.UnpicklingError(f"a message of {length} bytes")
        data = stream.read(length)
        if len(data) < length:
            return
        yield Sealed(reply, head + data) if sealed and reply != NO_REPLY else opened(data)

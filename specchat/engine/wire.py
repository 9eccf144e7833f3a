"""Messages on a byte stream between the app and its engine process: a length, then a pickle.

Both ends are this program on this machine, so the stream is trusted.
"""

import pickle
import struct
from collections.abc import Iterator
from typing import IO, Any

_LENGTH = struct.Struct("<I")


def write(stream: IO[bytes], message: object) -> None:
    """Write one message and flush.

    Raises:
        OSError, ValueError: the other end is gone or the stream is closed.
    """
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read(stream: IO[bytes]) -> Iterator[Any]:
    """Messages until the stream ends; an incomplete last one is dropped."""
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        data = stream.read(length)
        if len(data) < length:
            return
        yield pickle.loads(data)

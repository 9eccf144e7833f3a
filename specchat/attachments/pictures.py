"""Pictures that go along with a message."""

import os
import stat
from pathlib import Path

from specchat.attachments.files import AttachmentError
from specchat.clean import one_line
from specchat.engine.pictures.decode import MOST_BYTES
from specchat.engine.protocol.options import Picture


def read_picture(path: Path) -> Picture:
    """The bytes of a picture's file; the engine decodes them.

    Raises:
        AttachmentError: it cannot be read, is no regular file, or is over MOST_BYTES.
    """
    name, place = one_line(str(path)), os.path.expanduser(path)
    try:
        if not stat.S_ISREG(os.stat(place).st_mode):  # before opening, which would wait at a pipe
            raise AttachmentError(f"{name} is no regular file. Give the file of a picture.")
        with open(place, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "no such name"
        raise AttachmentError(f"{name} cannot be read ({reason}). Check the path.") from None
    if len(data) > MOST_BYTES:
        raise AttachmentError(f"{name} has over {MOST_BYTES >> 20} MiB. Give a smaller copy of it.")
    return Picture(data)

"""Files that go along with a message: texts, PDF and pictures."""

import mimetypes
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path, PurePath

from specchat.attachments import pdf
from specchat.attachments.pictures import AttachedPicture, attached, is_picture
from specchat.clean import clean, one_line
from specchat.dataclass import dataclass
from specchat.engine.errors import EngineError
from specchat.engine.pictures.decode import MOST_BYTES

MAX_BYTES = 2_000_000


class AttachmentError(EngineError):
    """A file that cannot be attached; the message names it and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__("request", message)


@dataclass(frozen=True)
class Attachment:
    """A file's text, or its picture, under the name it was given by.

    Of a file that is too long, `text` has passages, and `whole` says how many characters it has.
    """

    name: str
    text: str = ""
    picture: AttachedPicture | None = None
    whole: int = 0


def read_attachment(path: Path) -> Attachment:
    """A picture, or the text of a file: a byte order mark taken off, line ends made "\\n"; of a PDF that of its pages.

    Raises:
        AttachmentError: it cannot be read, is no regular file, too large, or neither UTF-8 text, a PDF nor a picture.
    """
    name = one_line(str(path))
    try:
        place = os.path.expanduser(path)
        mode = os.stat(place).st_mode  # before opening, which would wait at a pipe
        if stat.S_ISDIR(mode):
            raise AttachmentError(f"{name} is a folder. Write a / at its end to attach the text files in it.")
        if not stat.S_ISREG(mode):
            raise AttachmentError(f"{name} is not a regular file. Save what it holds to a file first.")
        with open(place, "rb") as file:
            data = file.read(MAX_BYTES + 1)
            if is_picture(data):
                data += file.read(MOST_BYTES + 1 - len(data))
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "no such name"
        raise AttachmentError(f"{name} cannot be read ({reason}). Check the path.") from None
    if data.startswith(pdf.MAGIC):
        return Attachment(name, _of_pdf(name, Path(place)))
    if is_picture(data):
        return _picture(name, data)
    if len(data) > MAX_BYTES:
        raise AttachmentError(f"{name} is over {MAX_BYTES // 1_000_000} MB. Attach the part of it that matters.")
    if b"\0" in data:
        image = (mimetypes.guess_type(name)[0] or "").startswith("image/")
        words = "images of this kind" if image else "binary files"
        raise AttachmentError(f"{name}: {words} cannot be attached, only texts, PDF and pictures.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttachmentError(
            f"{name} is not UTF-8 text (byte {error.start}). Convert it first, for example with iconv."
        ) from None
    return Attachment(name, with_newlines(text))


def _picture(name: str, data: bytes) -> Attachment:
    try:
        return Attachment(name, picture=attached(data))
    except EngineError as error:
        raise AttachmentError(f"{name}: {error.message}") from None


def _of_pdf(name: str, path: Path) -> str:
    try:
        if path.stat().st_size > pdf.MAX_BYTES:
            raise AttachmentError(
                f"{name} is over {pdf.MAX_BYTES // 1_000_000} MB. Attach the part of it that matters."
            )
        return clean(pdf.text_of(path, MAX_BYTES))
    except pdf.PdfError as error:
        raise AttachmentError(f"{name} {error}") from None
    except OSError as error:
        raise AttachmentError(f"{name} cannot be read ({error.strerror}). Check the path.") from None


def with_newlines(text: str) -> str:
    """`text` with the line ends of Windows and of old Macs made "\n"."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """`text`, then each text under its name, in a fence that nothing inside it can close."""
    texts = (_fenced(attachment) for attachment in attachments if attachment.picture is None)
    return "\n\n".join([*([text] if text else []), *texts])


def _fenced(attachment: Attachment) -> str:
    name, text = one_line(attachment.name), attachment.text
    fence = "`" * (1 + max([2, *(len(run) for run in re.findall("`+", text))]))
    suffix = PurePath(name).suffix[1:].lower()
    language = suffix if re.fullmatch(r"[a-z0-9+#_-]+", suffix) else ""
    end = "" if not text or text.endswith("\n") else "\n"
    return f"File {name}:\n{fence}{language}\n{text}{end}{fence}"

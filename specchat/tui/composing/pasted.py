"""Private files that prompts name: pictures of the clipboard, and outputs of code."""

import hashlib
import time
from pathlib import Path

from specchat import clipboard, private
from specchat.attachments.files import AttachmentError
from specchat.attachments.pictures import is_picture
from specchat.config.errors import ConfigError
from specchat.config.paths import private_folder
from specchat.engine.pictures.decode import MOST_BYTES

_KEPT_S = 7 * 24 * 3600
"""Age in seconds at which a file is removed. A chat has its own copy of what was sent."""


def pasted_picture(folder: Path) -> str:
    """The path of a file in `folder` with the clipboard's picture; empty where it has none. Waits for programs.

    Raises:
        AttachmentError: no program reads the clipboard, or the file cannot be written.
    """
    data = clipboard.picture(MOST_BYTES)
    if data is None:
        raise AttachmentError(
            "no program here reads pictures from the clipboard: install wl-clipboard or xclip, or write @picture.png"
        )
    return written(folder, data, "picture.png") if is_picture(data[:32]) else ""


def written(folder: Path, data: bytes, name: str) -> str:
    """The path of a new file, `name` with a digest, as prompts name it. Files that are older than a week go.

    Raises:
        AttachmentError: it cannot be written.
    """
    path = folder / name.replace(".", f"-{hashlib.sha256(data).hexdigest()[:8]}.")
    try:
        private_folder(folder)
        for old in folder.glob("*.*"):
            if old.stat().st_mtime < time.time() - _KEPT_S:
                old.unlink(missing_ok=True)
        with open(path, "wb", opener=private.opener) as file:
            file.write(data)
    except ConfigError as error:
        raise AttachmentError(error.message) from None
    except OSError as error:
        raise AttachmentError(f"{path} cannot be written ({error.strerror})") from None
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)

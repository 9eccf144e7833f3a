"""Text that was typed and not sent, kept in a file a window: found again after quitting, and after a crash."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from secrets import token_hex

from specchat.attachments.files import Attachment
from specchat.dataclass import dataclass
from specchat.private import FOLDER, opener
from specchat.reading import read_whole

try:
    import fcntl
except ImportError:  # Windows: no file says whether its window still runs
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class UnsentText:
    """The text in the box, and the folded pastes in it by their numbers."""

    text: str = ""
    pastes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class QueuedPrompt:
    """A prompt that is sent when the reply before it has ended, and what was typed for it."""

    text: str
    attachments: tuple[Attachment, ...]
    draft: UnsentText


def joined(drafts: Sequence[UnsentText]) -> UnsentText:
    """All in one, with an empty line between; the pastes numbered anew."""
    texts: list[str] = []
    pastes: dict[int, str] = {}
    for draft in drafts:
        text = draft.text
        for number in sorted(draft.pastes, reverse=True):
            text = text.replace(f"[paste {number}:", f"[paste {number + len(pastes)}:")
        pastes |= {number + len(pastes): pasted for number, pasted in draft.pastes.items()}
        texts += [text] if text.strip() else []
    return UnsentText("\n\n".join(texts), pastes)


class UnsentFile:
    """The unsent text of one window, beside that of others. A lock on its file says that the window runs."""

    def __init__(self, path: Path | None) -> None:
        """`path` is of the form `draft.json`; a window's file is `draft-1f2e3d4c.json`. With None nothing is kept."""
        self._path = path
        self._own: Path | None = None
        self._descriptor = -1
        self._kept = UnsentText()

    def take_left(self) -> UnsentText:
        """Return the unsent text of ended windows and delete their files; empty if no file can be read."""
        if self._path is None:
            return UnsentText()
        drafts = []
        for path in sorted(self._path.parent.glob(f"{self._path.stem}*.json"), key=_age):
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
                try:
                    _lock(descriptor)
                    draft = _read(path)
                finally:
                    os.close(descriptor)  # Windows removes no open file
                path.unlink()
                drafts.append(draft)
        return joined(drafts)

    def keep(self, draft: UnsentText, *, leaving: bool = False) -> None:
        """Write `draft` where it is another than before; nothing is said where it cannot be written.

        With `leaving` the next window takes it.
        """
        if self._path is None or (fcntl is None and not leaving):
            return
        if draft != self._kept:
            with suppress(OSError):
                self._write(self._path, draft)
                self._kept = draft
        if leaving and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, path: Path, draft: UnsentText) -> None:
        if not draft.text.strip():
            if self._own is not None:
                os.close(self._descriptor)
                own, self._own, self._descriptor = self._own, None, -1
                own.unlink(missing_ok=True)
            return
        if self._own is None:
            path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
            own = path.with_stem(f"{path.stem}-{token_hex(4)}")
            self._descriptor, self._own = opener(str(own), os.O_RDWR | os.O_CREAT | os.O_EXCL), own
            _lock(self._descriptor)
        data = json.dumps({"text": draft.text, "pastes": draft.pastes}).encode()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.ftruncate(self._descriptor, os.lseek(self._descriptor, 0, os.SEEK_CUR))


def _lock(descriptor: int) -> None:
    """Raises OSError where a window that runs has the file."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path) -> UnsentText:
    try:  # what follows the object is of a longer text before it, if a crash came between
        data, _ = json.JSONDecoder().raw_decode(read_whole(path).decode())
        return UnsentText(str(data["text"]), {int(number): str(text) for number, text in data["pastes"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return UnsentText()

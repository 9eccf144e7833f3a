"""Text that was typed and not sent: the prompt box as it was, kept in a file from one run to the next."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specchat.attachments import Attachment
from specchat.private import FOLDER, opener
from specchat.reading import read_whole


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


def keep(path: Path, draft: UnsentText) -> None:
    """Write `draft` for the next run; nothing where it is empty or the file cannot be written."""
    if not draft.text.strip():
        return
    try:
        path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=opener) as file:
            json.dump({"text": draft.text, "pastes": draft.pastes}, file)
    except OSError:
        return


def take(path: Path) -> UnsentText:
    """The draft that the last run kept, once; an empty one where there is nothing that can be read."""
    try:
        data = json.loads(read_whole(path))
        path.unlink()
        return UnsentText(str(data["text"]), {int(number): str(text) for number, text in data["pastes"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return UnsentText()

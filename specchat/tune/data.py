"""The prompts that a tune learns from: those of a file or of saved chats."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specchat.bench.prompts import read_prompts
from specchat.chat.asked import AskedPrompt
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message
from specchat.private import replace
from specchat.tune import BEGUN_WITH
from specchat.tune.plan import LEAST_ASKED

LEAST_PROMPTS = 2


@dataclass(frozen=True)
class TuneData:
    """Prompts, in words too, and the saved chats among them, as titles by key."""

    chats: Sequence[tuple[Message, ...]]
    words: str
    used: Mapping[str, str]


def of_file(file: Path) -> TuneData:
    """The prompts of a file.

    Raises:
        EngineError: it cannot be read, or holds too few.
    """
    chats = [prompt.messages for prompt in read_prompts(file)]
    if len(chats) < LEAST_PROMPTS:
        raise EngineError(
            "request",
            f"{file} holds fewer than {LEAST_PROMPTS} prompts: one to learn from and one to be held out. Add some.",
        )
    return TuneData(chats, f"{len(chats):,} prompts of {file}", {})


def of_chats(asked: Sequence[AskedPrompt]) -> TuneData:
    """The prompts of saved chats.

    Raises:
        EngineError: there are too few.
    """
    if len(asked) < LEAST_ASKED:
        raise EngineError(
            "request",
            f"The saved chats have {len(asked)} of the {LEAST_ASKED} prompts that it takes to learn from and to "
            "measure by. Chat a while, or give --prompts.",
        )
    used = {each.chat: each.title for each in asked}
    return TuneData([each.messages for each in asked], f"{len(asked):,} prompts of {len(used):,} saved chats", used)


def begun_with(folder: Path, data: TuneData) -> TuneData:
    """Prompts of chats that an unfinished tune in `folder` began with, or `data` if a chat is gone.

    Chats go on while a draft learns from them, and with other prompts a tune begins anew.

    Raises:
        OSError: a file cannot be written.
    """
    from pydantic import TypeAdapter, ValidationError

    kind, file = TypeAdapter(TuneData), folder / BEGUN_WITH
    with suppress(OSError, ValidationError):
        before = kind.validate_json(file.read_bytes())
        if before.used.keys() <= data.used.keys():
            return before
    replace(file, kind.dump_json(data).decode())
    return data


def forget_begun(folder: Path) -> None:
    """Let the next tune in `folder` begin with the chats as they are then."""
    (folder / BEGUN_WITH).unlink(missing_ok=True)

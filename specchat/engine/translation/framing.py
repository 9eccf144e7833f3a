"""What chat templates put around messages: a draft that reads its own reads the chat as it has learnt to."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from specchat.engine.errors import ModelError
from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.options import Message

SAID = ("Alder", "Birch", "Cedar")
"""Messages whose tokens are looked for in prompts."""
CHATS = (
    (Message("user", SAID[0]), Message("assistant", SAID[1]), Message("user", SAID[2])),
    (Message("system", SAID[0]), Message("user", SAID[1]), Message("assistant", SAID[2])),
    (Message("system", SAID[0]), Message("user", SAID[1])),
)

Frame = tuple[int, ...]
"""The tokens before, between or after messages."""


def frames(target: Tokenizer, draft: Tokenizer) -> Mapping[Frame, Frame]:
    """The draft's tokens for each of the target's frames that begins with a special token."""
    special = {token for token, one in target.added.items() if one.special}
    found: dict[Frame, Frame] = {}
    for chat in CHATS:
        with suppress(ModelError, ValueError):  # a template that refuses such a chat, or changes its messages
            pairs = zip(_around(target, chat), _around(draft, chat), strict=True)
            found |= {mine: own for mine, own in pairs if own and mine and mine[0] in special and mine not in found}
    return found


def _around(tokenizer: Tokenizer, chat: Sequence[Message]) -> list[Frame]:
    """The frames of a chat, from the first to the last.

    Raises:
        ModelError: the template refuses the chat.
        ValueError: a message is not in the prompt as it is by itself.
    """
    prompt, made, at = tokenizer.prompt(chat), list[Frame](), 0
    for message in chat:
        said = tokenizer.encode(message.content)
        begins = (start for start in range(at, len(prompt)) if prompt[start : start + len(said)] == said)
        start = next(begins, None)
        if start is None:
            raise ValueError(message.content)
        made.append(tuple(prompt[at:start]))
        at = start + len(said)
    return [*made, tuple(prompt[at:])]

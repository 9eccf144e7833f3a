"""Map of what two chat templates put around messages, so that a draft model reads chats in its own format."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from specchat.engine.errors import ModelError
from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.options import Message

CONTENTS = ("Alder", "Birch", "Cedar")
"""Messages whose tokens are located in prompts."""
CHATS = (
    (Message("user", CONTENTS[0]), Message("assistant", CONTENTS[1]), Message("user", CONTENTS[2])),
    (Message("system", CONTENTS[0]), Message("user", CONTENTS[1]), Message("assistant", CONTENTS[2])),
    (Message("system", CONTENTS[0]), Message("user", CONTENTS[1])),
)

Frame = tuple[int, ...]
"""Tokens before, between or after messages."""


def template_map(target: Tokenizer, draft: Tokenizer) -> Mapping[Frame, Frame]:
    """Draft tokens for each frame of the target's template that begins with a special token."""
    special = {token for token, one in target.added.items() if one.special}
    found: dict[Frame, Frame] = {}
    for chat in CHATS:
        with suppress(ModelError, ValueError):  # a template that refuses such a chat, or changes its messages
            pairs = zip(_frames(target, chat), _frames(draft, chat), strict=True)
            found |= {
                frame: own for frame, own in pairs if own and frame and frame[0] in special and frame not in found
            }
    return found


def _frames(tokenizer: Tokenizer, chat: Sequence[Message]) -> list[Frame]:
    """Frames of a chat in order.

    Raises:
        ModelError: the template refuses the chat.
        ValueError: the template changes a message.
    """
    prompt, frames, at = tokenizer.prompt(chat), list[Frame](), 0
    for message in chat:
        content = tokenizer.encode(message.content)
        matches = (start for start in range(at, len(prompt)) if prompt[start : start + len(content)] == content)
        start = next(matches, None)
        if start is None:
            raise ValueError(message.content)
        frames.append(tuple(prompt[at:start]))
        at = start + len(content)
    return [*frames, tuple(prompt[at:])]

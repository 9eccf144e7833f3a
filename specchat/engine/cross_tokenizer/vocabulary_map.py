"""Maps between the vocabularies of a target and of a draft model.

Tokens of equal bytes are shared (the vocabulary intersection of Timor et al. 2025). Several draft tokens spell a token
that only the target has. A token that only the draft has begins with one of the target's. Text that chat templates put
around messages is mapped too, so that the draft reads chats in its own format.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from specchat.engine.cross_tokenizer.token_bytes import FragmentEncoder, token_bytes
from specchat.engine.errors import ModelError
from specchat.engine.protocol.options import Message
from specchat.engine.text.tokenizer import Tokenizer

Path = tuple[int, ...]
"""Consecutive tokens."""
CONTENTS = ("Alder", "Birch", "Cedar")
"""Messages whose tokens are located in prompts."""
CHATS = (
    (Message("user", CONTENTS[0]), Message("assistant", CONTENTS[1]), Message("user", CONTENTS[2])),
    (Message("system", CONTENTS[0]), Message("user", CONTENTS[1]), Message("assistant", CONTENTS[2])),
    (Message("system", CONTENTS[0]), Message("user", CONTENTS[1])),
)


@dataclass(frozen=True)
class VocabularyMap:
    """Both directions between two vocabularies, computed once a pair.

    Attributes:
        texts: bytes of the target's ordinary tokens.
        special: draft tokens for the target's special tokens.
        templates: draft tokens for what the target's chat template puts around messages.
        to_target: target tokens that spell each draft token; a token that cannot be spelled is absent.
        continuations: draft tokens that may follow each proper beginning of a spelled target token, sorted.
        spelled: target token that a whole path of draft tokens spells.
        renumbered: draft token of each target token, where both vocabularies hold the same tokens; else empty.
        encoder: the draft's.
        summary: a sentence for the user.
    """

    texts: Mapping[int, bytes]
    special: Mapping[int, Path]
    templates: Mapping[Path, Path]
    to_target: Mapping[int, Path]
    continuations: Mapping[Path, list[int]]
    spelled: Mapping[Path, int]
    renumbered: Mapping[int, int]
    encoder: FragmentEncoder
    summary: str

    @classmethod
    def of(cls, target: Tokenizer, draft: Tokenizer) -> "VocabularyMap":
        """Compare all tokens, which takes some seconds for large vocabularies."""
        target_bytes, draft_bytes = token_bytes(target), token_bytes(draft)
        encoder, target_encoder = FragmentEncoder(draft, draft_bytes), FragmentEncoder(target, target_bytes)
        target_ids = {text: token for token, text in sorted(target_bytes.items(), reverse=True)}
        draft_ids = {text: token for token, text in sorted(draft_bytes.items(), reverse=True)}
        continuations: dict[Path, set[int]] = {}
        spelled: dict[Path, int] = {}
        for text in target_ids.keys() - draft_ids.keys():
            path = tuple(encoder.encode(text))
            if len(path) > 1 and b"".join(draft_bytes.get(token, b"") for token in path) == text:
                spelled[path] = target_ids[text]
                for end in range(1, len(path)):
                    continuations.setdefault(path[:end], set()).add(path[end])
        to_target = {
            token: (target_ids[text],) if text in target_ids else tuple(target_encoder.encode(text))
            for token, text in draft_bytes.items()
        }
        same = target_ids.keys() == draft_ids.keys()
        shared = len(target_ids.keys() & draft_ids.keys())
        return cls(
            texts=target_bytes,
            special=_special(target, draft, encoder),
            templates=_template_map(target, draft),
            to_target=to_target | _special(draft, target, None),
            continuations={path: sorted(tokens) for path, tokens in continuations.items()},
            spelled=spelled,
            renumbered={token: draft_ids[text] for token, text in target_bytes.items()} if same else {},
            encoder=encoder,
            summary=f"the draft's tokens differ: it has {shared:,} of the target's {len(target_ids):,}, "
            "the rest is respelt",
        )


def _special(from_: Tokenizer, to: Tokenizer, encoder: FragmentEncoder | None) -> dict[int, Path]:
    """Map special tokens by name, and an end of text to an end of text.

    An `encoder` writes all others as plain text; without one they are left out.
    """
    special = {one.content: token for token, one in to.added.items() if one.special}
    found: dict[int, Path] = {}
    for token, one in from_.added.items():
        if not one.special:
            continue
        if one.content in special:
            found[token] = (special[one.content],)
        elif token in from_.eos and to.eos:
            found[token] = (min(to.eos),)
        elif encoder is not None:
            found[token] = tuple(encoder.encode(one.content.encode()))
    return found


def _template_map(target: Tokenizer, draft: Tokenizer) -> Mapping[Path, Path]:
    """Draft tokens for each frame of the target's template that begins with a special token."""
    special = {token for token, one in target.added.items() if one.special}
    found: dict[Path, Path] = {}
    for chat in CHATS:
        with suppress(ModelError, ValueError):  # a template that refuses such a chat, or changes its messages
            pairs = zip(_frames(target, chat), _frames(draft, chat), strict=True)
            found |= {
                frame: draft_frame
                for frame, draft_frame in pairs
                if draft_frame and frame and frame[0] in special and frame not in found
            }
    return found


def _frames(tokenizer: Tokenizer, chat: Sequence[Message]) -> list[Path]:
    """Tokens before, between and after the messages of a chat.

    Raises:
        ModelError: the template refuses the chat.
        ValueError: the template changes a message.
    """
    prompt, frames, at = tokenizer.prompt(chat), list[Path](), 0
    for message in chat:
        content = tokenizer.encode(message.content)
        matches = (start for start in range(at, len(prompt)) if prompt[start : start + len(content)] == content)
        start = next(matches, None)
        if start is None:
            raise ValueError(message.content)
        frames.append(tuple(prompt[at:start]))
        at = start + len(content)
    return [*frames, tuple(prompt[at:])]

"""What the tokens of a target and of a draft are to each other.

Tokens of the same text are the same (the intersection of Timor et al. 2025). A token that only the target has is spelt
by several of the draft's; one that only the draft has begins with one of the target's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.translation.framing import frames
from specchat.engine.translation.spelling import Splitter, spellings

Path = tuple[int, ...]
"""Tokens of the draft that follow each other."""


@dataclass(frozen=True)
class Dictionary:
    """How two vocabularies translate.

    Attributes:
        texts: the bytes of the target's ordinary tokens.
        marks: the draft's tokens for the target's special ones.
        frames: those for what the target's template puts around messages.
        said: the target's tokens for each of the draft's, none where there are none.
        following: of the tokens that spell one of the target's, which may come next, after each beginning of them.
        whole: the target's token that such a path spells.
        alike: the draft's token for each of the target's where both have the same ones, empty where they have not.
        splitter: the draft's.
        words: what is told of it.
    """

    texts: Mapping[int, bytes]
    marks: Mapping[int, Path]
    frames: Mapping[Path, Path]
    said: Mapping[int, Path]
    following: Mapping[Path, list[int]]
    whole: Mapping[Path, int]
    alike: Mapping[int, int]
    splitter: Splitter
    words: str

    @classmethod
    def of(cls, target: Tokenizer, draft: Tokenizer) -> "Dictionary":
        """Compare all tokens, which takes some seconds for large vocabularies."""
        mine, own = spellings(target), spellings(draft)
        splitter, splits = Splitter(draft, own), Splitter(target, mine)
        tokens = {text: token for token, text in sorted(mine.items(), reverse=True)}
        owns = {text: token for token, text in sorted(own.items(), reverse=True)}
        following: dict[Path, set[int]] = {}
        whole: dict[Path, int] = {}
        for text in tokens.keys() - owns.keys():
            path = tuple(splitter.split(text))
            if len(path) > 1 and b"".join(own.get(token, b"") for token in path) == text:
                whole[path] = tokens[text]
                for end in range(1, len(path)):
                    following.setdefault(path[:end], set()).add(path[end])
        said = {token: (tokens[text],) if text in tokens else tuple(splits.split(text)) for token, text in own.items()}
        shared = len(tokens.keys() & owns.keys())
        return cls(
            texts=mine,
            marks=_marks(target, draft, splitter),
            frames=frames(target, draft),
            said=said | _marks(draft, target, None),
            following={path: sorted(nexts) for path, nexts in following.items()},
            whole=whole,
            alike={token: owns[text] for token, text in mine.items()} if tokens.keys() == owns.keys() else {},
            splitter=splitter,
            words=f"the draft's tokens differ: it has {shared:,} of the target's {len(tokens):,}, the rest is respelt",
        )


def _marks(from_: Tokenizer, to: Tokenizer, splitter: Splitter | None) -> dict[int, Path]:
    """Special tokens of one tokenizer in the tokens of another.

    They are those of the same name, an end for an end, and with a `splitter` plain text for all others.
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
        elif splitter is not None:
            found[token] = tuple(splitter.split(one.content.encode()))
    return found

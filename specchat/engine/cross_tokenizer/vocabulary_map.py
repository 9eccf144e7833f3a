"""Maps between the vocabularies of a target and of a draft model.

Tokens of equal bytes are shared (the vocabulary intersection of Timor et al. 2025). Several draft tokens spell a token
that only the target has. A token that only the draft has begins with one of the target's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.engine.cross_tokenizer.template_map import template_map
from specchat.engine.cross_tokenizer.token_bytes import FragmentEncoder, token_bytes
from specchat.engine.model.tokenizer import Tokenizer

Path = tuple[int, ...]
"""Consecutive tokens."""


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
            templates=template_map(target, draft),
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

"""Smaller models that could draft for a model: those here, a small one to fetch, and why others cannot.

One with the same tokens is better than one whose tokens are translated.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from pydantic import Field

from specchat import figures
from specchat.engine.errors import ModelError
from specchat.engine.files import LONGEST_TOKENIZER, read
from specchat.engine.foreign import Foreign
from specchat.engine.gguf.cursor import PADDING_PREFIX
from specchat.engine.protocol.pair import ModelSource
from specchat.models.about import About
from specchat.models.library import FoundModel, Library

SHARE = 1 / 3
"""The largest part of the target's weights that a draft may have to be worth its time."""
SMALL: dict[tuple[str, int], tuple[str, int]] = {
    ("qwen3", 151936): ("Qwen/Qwen3-0.6B", 596_049_920),
    ("qwen2", 151936): ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
    ("qwen2", 152064): ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
    ("llama", 128256): ("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400),
    ("llama", 49152): ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ("gemma3", 262144): ("google/gemma-3-270m-it", 268_098_176),
    ("gemma3", 262208): ("google/gemma-3-270m-it", 268_098_176),
    ("gemma3_text", 262144): ("google/gemma-3-270m-it", 268_098_176),
}
"""The smallest published model of a family, by architecture and vocabulary, with its weights."""
MOST = 1 << 21
"""Tokens that are looked at."""
OTHER_TOKENS = "its tokens are others, so that fewer of its drafts are kept"


@dataclass(frozen=True)
class Proposal:
    """A model that could draft; `about` is None where it has to be fetched first, `cost` says what it is worse at."""

    name: str
    source: ModelSource
    parameters: int
    about: About | None
    cost: str = ""


@dataclass(frozen=True)
class DraftProposals:
    """Proposals and sentences about models that cannot draft.

    Of the proposals those with the target's tokens come first, of these the ones that are here, small before large.
    """

    proposals: tuple[Proposal, ...]
    refused: tuple[str, ...]


def drafts_for(target: About, library: Library) -> DraftProposals:
    """Draft models for `target`, from the shapes and vocabularies alone; loading checks every token."""
    here: list[Proposal] = []
    refused: list[str] = []
    for found in library.models:
        about = found.about
        if about.place == target.place or not _runs_beside(target, about):
            continue
        if reason := lack(target, about):
            if about.architecture == target.architecture:
                refused.append(f"{about.name} cannot draft: {reason}.")
        else:
            here.append(Proposal(about.name, source_of(found), about.parameters, about, cost(target, about)))
    here.sort(key=lambda proposal: proposal.parameters)
    alike = [proposal for proposal in here if not proposal.cost]
    others = [proposal for proposal in here if proposal.cost]
    names = {found.repo for found in library.models}
    fetched = [proposal for proposal in _to_fetch(target) if proposal.name not in names]
    return DraftProposals((*alike, *fetched, *others), tuple(refused))


def _runs_beside(target: About, draft: About) -> bool:
    """True where the two can be loaded together: specchat's own decoder drafts for any GGUF file, and for itself."""
    if draft.config is not None:
        return target.config is not None or target.format in ("GGUF", draft.format)
    return target.config is None and draft.format == target.format


def source_of(found: FoundModel) -> ModelSource:
    """Place of a found model, for models.toml."""
    path = found.about.place
    if found.about.format == "GGUF":
        at_the_top = found.repo and path.parent.parent.name == "snapshots"
        return ModelSource(repo=found.repo, file=path.name) if at_the_top else ModelSource(path=str(path))
    return ModelSource(repo=found.repo) if found.repo else ModelSource(path=str(path))


def too_large(target: About, draft: About) -> str:
    """A reason, in words, where `draft` has too many weights to be worth its time; else empty."""
    if not target.parameters or draft.parameters <= SHARE * target.parameters:
        return ""
    return f"it is too large ({figures.times(draft.parameters / target.parameters)} this model's size)"


def lack(target: About, draft: About) -> str:
    """Why `draft` is no draft for `target`, in words; empty where nothing speaks against it."""
    if reason := too_large(target, draft):
        return reason
    if draft.why_not:
        return draft.why_not
    try:
        cost(target, draft)
    except ModelError as error:
        return error.message
    return ""


def cost(target: About, draft: About) -> str:
    """The disadvantage of `draft` against a model with the target's tokens, in words; empty where it has them.

    Raises:
        ModelError: a tokenizer is missing or damaged.
    """
    return "" if _tokens(target) == _tokens(draft) else OTHER_TOKENS


def _to_fetch(target: About) -> Iterator[Proposal]:
    if target.config is not None and (known := SMALL.get((target.architecture, target.config.vocab))) is not None:
        repo, parameters = known
        if parameters <= SHARE * target.parameters:
            yield Proposal(repo, ModelSource(repo=repo), parameters, None)


class _Vocabulary(Foreign):
    vocab: dict[str, int] | list[tuple[str, float]] | None = Field(None, description="an object of numbers, or a list")


class _AddedToken(Foreign):
    id: int = Field(description="a number")
    content: str = Field(description="a text")


class _Tokenizer(Foreign):
    """The part of a tokenizer.json that gives tokens their numbers."""

    model: _Vocabulary = Field(description="an object")
    added_tokens: list[_AddedToken] | None = Field(None, description="a list")


def _tokens(about: About) -> str:
    """The SHA-256 of a model's tokens, as of `Header.tokens`."""
    if about.format == "GGUF":
        return about.tokens
    path = about.place / "tokenizer.json"
    try:
        return _vocabulary(path, path.stat().st_mtime_ns)
    except OSError:
        raise ModelError("it has no tokenizer.json") from None


@lru_cache(maxsize=512)
def _vocabulary(path: Path, changed: int) -> str:
    """The same of a tokenizer.json, read once until it changes."""
    del changed
    written = read(path, _Tokenizer, LONGEST_TOKENIZER)
    vocab = written.model.vocab or {}
    texts = (
        {i: str(one[0]) for i, one in enumerate(vocab)} if isinstance(vocab, list) else {i: t for t, i in vocab.items()}
    )
    texts |= {added.id: added.content for added in written.added_tokens or ()}
    listed = b"".join(struct.pack("<Q", len(text)) + text for text in _in_order(texts))
    return sha256(listed).hexdigest()


def _in_order(texts: Mapping[int, str]) -> list[bytes]:
    """The texts of tokens by their numbers, as GGUF files list them, without those that only pad the end."""
    found = [texts.get(number, f"[PAD{number}]").encode() for number in range(min(max(texts, default=-1) + 1, MOST))]
    while found and found[-1].startswith(PADDING_PREFIX):
        found.pop()
    return found

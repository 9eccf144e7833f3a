"""Smaller models that could draft for a model: those here, a small one to fetch, and why others cannot.

One with the same tokens is better than one whose tokens are translated.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from specchat import figures
from specchat.engine.errors import ModelError
from specchat.engine.files import LONGEST_TOKENIZER, read
from specchat.engine.foreign import Foreign
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
}
"""The smallest published model of a family, by architecture and vocabulary, with its weights."""
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
        if about.place == target.place or about.format != target.format:
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
    if target.format == draft.format == "GGUF":
        same = draft.tokens == target.tokens
    else:
        same = _vocabulary(target.place) == _vocabulary(draft.place)
    return "" if same else OTHER_TOKENS


def _to_fetch(target: About) -> Iterator[Proposal]:
    if target.config is not None and (known := SMALL.get((target.architecture, target.config.vocab))) is not None:
        repo, parameters = known
        if parameters <= SHARE * target.parameters:
            yield Proposal(repo, ModelSource(repo=repo), parameters, None)


class _DraftModel(Foreign):
    vocab: dict[str, int] | list[Any] | None = Field(None, description="an object of numbers, or a list")


class _Tokenizer(Foreign):
    """The part of a tokenizer.json that gives tokens their numbers."""

    model: _DraftModel = Field(description="an object")
    added_tokens: list[Any] | None = Field(None, description="a list")


_vocabularies: dict[tuple[Path, int], int] = {}


def _vocabulary(folder: Path) -> int:
    """A number that differs where the tokens of a checkpoint do; read once until its tokenizer.json changes."""
    path = folder / "tokenizer.json"
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        raise ModelError("it has no tokenizer.json") from None
    if (path, changed) not in _vocabularies:
        written = read(path, _Tokenizer, LONGEST_TOKENIZER)
        _vocabularies[path, changed] = hash(json.dumps([written.model.vocab, written.added_tokens], sort_keys=True))
    return _vocabularies[path, changed]

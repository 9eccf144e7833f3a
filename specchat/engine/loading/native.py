"""Pairs that the native decoder runs: find, place and read the files, and measure the pair."""

import gc
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch

from specchat.engine.cpu import compiled
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.errors import EngineError, ModelError, PageLockRefused
from specchat.engine.fetch.hub import locate
from specchat.engine.formats.activations import rounding_of
from specchat.engine.hardware.gpu_counters import bus_rate
from specchat.engine.hardware.gpu_failure import REPORT, GpuLost, first_line, is_gpu_failure
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.hardware.threads import leave_one_core
from specchat.engine.heads.files import FoundHeads
from specchat.engine.loading import heads
from specchat.engine.loading.drafting import noted, on_the_host, unrestricted, vocabulary_map_of, words_of
from specchat.engine.loading.next_best import KernelsUnsupported
from specchat.engine.loading.pictures import opened_album, with_draft_tower, with_tower
from specchat.engine.loading.placing import placed, smaller
from specchat.engine.loading.progress import Bar, Progress
from specchat.engine.memory.expert_price import describe_experts
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import Plan, shortened
from specchat.engine.pictures.files import most_tokens
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.host import NativeModel
from specchat.engine.runners.load import load_runner
from specchat.engine.session import Session
from specchat.engine.text import draft_vocabulary
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint

RAN_OUT = "The GPU's memory ran out while {} was being loaded"
FULL = "End other programs that use the GPU and load the pair again, or set a smaller context for it in models.toml."
"""Advice where the GPU's memory ran out."""
TEXT_ALONE = "the text part of a model that reads images; images are not read"


@dataclass(frozen=True)
class _Files:
    """The files of a pair, opened, with what is known before anything is placed.

    Attributes:
        pair: as it is loaded: a draft with another tokenizer runs on the host.
        frequent: the draft vocabulary, if it is used.
        warning: a setting that does not take effect, as a sentence; else empty.
    """

    pair: PairSpec
    target: Checkpoint
    draft: Checkpoint | None
    tokenizer: Tokenizer
    vocabulary_map: VocabularyMap | None
    heads: FoundHeads
    frequent: tuple[int, ...] | None
    warning: str

    @classmethod
    def find(cls, pair: PairSpec, progress: Progress) -> "_Files":
        """Find a pair's files, downloaded if need be, and open them."""
        target, draft, vocabulary_map = _opened(pair, pair.target, progress), None, None
        if pair.cache and not target.config.recipe.attentions:
            raise ModelError(
                f'{pair.target.label}: cache = "{pair.cache}" is a form of keys and values of attention, and this '
                "model has none. Leave cache out."
            )
        tokenizer = target.tokenizer()
        tokenizer.use(pair.template)
        if pair.draft is not None:
            draft = _opened(pair, pair.draft, progress)
            vocabulary_map = vocabulary_map_of(pair, tokenizer, draft.tokenizer())
        frequent: tuple[int, ...] | None = None
        if vocabulary_map is not None:
            pair, warning = on_the_host(pair), unrestricted(pair, "the draft's tokens differ from the target's")
        else:
            frequent, warning = _frequent(pair, tokenizer, target.config.eos | tokenizer.eos)
            draft = draft and replace(draft, drafts=frequent)
        trained = heads.found(pair, replace(target, drafts=frequent), progress)
        if frequent is not None and draft is None and not heads.has_own_layer(pair, target):
            frequent = None
            without = f"{pair.id} has neither a draft model nor a layer of its target"
            warning = f"{without} that draft_vocabulary would restrict."
        return cls(pair, target, draft, tokenizer, vocabulary_map, trained, frequent, warning)


def _opened(pair: PairSpec, source: ModelSource, progress: Progress) -> Checkpoint:
    """Open a checkpoint, with KV entries in the pair's form and pictures of its processor's size."""
    found = Checkpoint.open(locate(source, progress))
    config = found.config.with_cache(pair.cache)
    if most := most_tokens(found):
        config = replace(config, recipe=config.recipe.with_pictures(most))
    return replace(found, config=config)


def _rounding(
    pair: PairSpec, source: ModelSource, checkpoint: Checkpoint, model: Model, drafts: bool = False
) -> Checkpoint:
    """`checkpoint` with the forms of its rows and head where `model` places it."""
    found = rounding_of(pair, source, model.held, drafts)
    return replace(checkpoint, activations=found.activations, head=found.head)


def _rounded_words(target: Checkpoint) -> str:
    """The rounding of the target beside its weights, in words; empty for none."""
    parts = ["activations"] * (target.activations == "int8") + ["the head"] * (target.head is not None)
    in_bytes = f"{' and '.join(parts)} in 8 bits" if parts else ""
    return noted(in_bytes, "activations and dense weights in bfloat16" * (target.activations == "bfloat16"))


def load(
    pair: PairSpec, progress: Progress, make_room: Callable[[], None], shared: NativeModel | None = None
) -> Session:
    """Load a pair; see `loading.load`. `shared` is its target, already loaded."""
    started, bar = perf_counter(), Bar(progress)
    compiled.share_compilation()
    leave_one_core()
    files = _Files.find(pair, progress)
    make_room()
    bar.show(f"reading {pair.target.short}", 0.1)
    placement = placed(files.pair, files.target, files.draft, bar)
    bar.show(f"reading {pair.target.short}", 0.1)
    wanted, full = placement.plan.context, True
    while full:
        try:
            session = _read(files, placement.plan, placement.note, bar, shared, started)
            if placement.plan.context < wanted:
                session.warn(f"{RAN_OUT.format(pair.id)}, so its context has {placement.plan.context} tokens.", FULL)
            return session
        except PageLockRefused as error:
            if placement.otherwise is None:
                raise
            reason, kernels, full = error.reason, False, False
        except EngineError:
            raise
        except Exception as error:
            if placement.plan.target.place == "cpu" or (ran_out(error) and "CUDA" not in str(error)):
                raise  # main memory ran out
            full = ran_out(error)
            logging.getLogger(__name__).info("the GPU failed", exc_info=True)
            reason, kernels = first_line(error), not full
            if is_gpu_failure(error):
                raise GpuLost(files.pair, reason) from None
        if full:
            _empty()
            if (less := smaller(files.pair, files.target, files.draft, placement)) is None:
                break
            placement = less
            bar.show(f"the GPU's memory ran out; trying a context of {less.plan.context}", 0.1)
    if placement.otherwise is None and full:
        raise EngineError("memory", f"{RAN_OUT.format(pair.id)}. {FULL}")
    if placement.otherwise is None or (kernels and torch.cuda.is_available()):
        raise KernelsUnsupported(f"the GPU failed ({reason})", REPORT)
    bar.show("the GPU failed; going to the CPU", 0.1)
    GpuRecord.use()
    note = "" if full else f"the GPU failed: {reason}"
    session = _read(files, placement.otherwise, note, bar, shared, started)
    if full:
        session.warn(f"{RAN_OUT.format(pair.id)}, so it runs on the CPU.", FULL)
    return session


def _empty() -> None:
    """Give the GPU back what a failed load has left."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _read(files: _Files, plan: Plan, note: str, bar: Bar, shared: NativeModel | None, started: float) -> Session:
    pair, draft, target = files.pair, files.draft, files.target
    target = _rounding(pair, pair.target, target, plan.target)
    if draft is not None and pair.draft is not None and plan.draft is not None:
        draft = _rounding(pair, pair.draft, draft, plan.draft, drafts=True)

    def about_draft() -> None:
        if pair.draft is not None:
            bar.show(f"reading {pair.draft.short}", 0.5)

    with bar.compiling(plan):
        pair, plan, without = heads.with_adapter(pair, plan)
        fitting, plan = heads.fitting(files.heads, plan)
        plan, looking, of_tower = with_tower(target, plan)
        plan, by_draft = with_draft_tower(target, draft, plan, looking)
        plan = plan if plan.target.place == "cpu" else plan.leaving(heads.free_on_gpu())
        runner = load_runner(pair, target, draft, plan, about_draft, files.vocabulary_map, fitting, shared)
    runner = replace(runner, exactness=noted(runner.exactness, _rounded_words(target)))
    runner.prepare(lambda part: bar.show(f"preparing the GPU: {part}", 0.8))
    bar.show("measuring plain speed", 0.9)
    album = opened_album(pair, target, runner, files.tokenizer, (looking, by_draft), draft, plan.target.first > 0)
    text_alone = TEXT_ALONE * (target.also_sees and not album.sees)
    note = noted(note, words_of(files.vocabulary_map), of_tower, text_alone)
    session = Session(pair, files.tokenizer, runner, started, note, album)
    forms = sorted(plan.target.held.forms(target.head), key=lambda form: form != target.activations)
    session.info = replace(session.info, load=replace(session.info.load, forms=tuple(forms)))
    if files.frequent and (draft is not None or heads.own_layer_drafts(runner.statuses)):
        session.info = replace(session.info, draft=replace(session.info.draft, tokens=len(files.frequent)))
    short = shortened(pair.context, target.config.longest, pair.target.label)
    price = describe_experts(plan.target, bus_rate(runner.gpu))
    session.warn(short, files.warning, without, heads.unused_heads(pair, runner.statuses), price)
    return session


def _frequent(pair: PairSpec, tokenizer: Tokenizer, eos: Collection[int]) -> tuple[tuple[int, ...] | None, str]:
    """The pair's draft vocabulary, if it has one; None with the reason where it cannot be used."""
    if pair.draft_vocabulary is None:
        return None, ""
    try:
        return draft_vocabulary.read(Path(pair.draft_vocabulary), tokenizer, eos), ""
    except draft_vocabulary.Unusable as error:
        return None, (
            f"{pair.id} drafts with its whole vocabulary: {pair.draft_vocabulary} {error}. "
            f'"specchat tune vocabulary {pair.id}" makes it anew.'
        )

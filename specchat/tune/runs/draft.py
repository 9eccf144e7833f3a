"""The tune of a draft model: distilled on the target's replies, and measured before and after."""

import gc
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.protocol.options import Speculation
from specchat.engine.text.tokenizer import same_tokens
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.distilling import Distilled, Distilling
from specchat.tune.draft import DraftLearner, untrainable
from specchat.tune.files import put_tensors
from specchat.tune.gain import Side
from specchat.tune.order import TuneOrder
from specchat.tune.outcome import TuneResult, measured, registered
from specchat.tune.plan import LARGEST_WHOLE, tune_plan
from specchat.tune.work import loaded, opened
from specchat.tune.workshop import fingerprint

STRATEGY = "draft"


def tuned(order: TuneOrder, adapted: bool | None) -> list[str]:
    """Train the pair's draft, whole or by `adapted` matrices, and register it if it is clearly faster.

    Raises:
        TuneStopped: it is to be stopped.
        Different: a text is not plain decoding's.
        EngineError: no reply to learn from, a draft that cannot be trained, or a pair that cannot be loaded.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written or read.
    """
    draft = order.pair.spec.draft
    if draft is None:
        raise EngineError("model", f'Pair "{order.pair.id}" has no draft model to train.')
    by_draft = Speculation.of(STRATEGY, order.pair.lengths.get(STRATEGY))
    found = _distilled(order, adapted, by_draft.draft_length)
    trained = replace(draft, path=str(order.shop.finished), repo=None, revision=None)
    before, after = (Side(replace(order.pair.spec, draft=one, heads={}), [by_draft]) for one in (draft, trained))
    line = (
        f"Held-out replies: {found.before.rate:.0%} of drafts accepted before, {found.after.rate:.0%} after; "
        f"{found.before.length:.2f} and {found.after.length:.2f} tokens a step."
    )
    result = TuneResult(
        kind=STRATEGY,
        key="draft",
        subject="The draft lies",
        files=order.shop.finished,
        before={"accepted": found.before.rate},
        after={"accepted": found.after.rate},
    )
    return [line, *registered(order, result, measured(order, before, after))]


def _distilled(order: TuneOrder, adapted: bool | None, length: int) -> Distilled:
    spec, shop = order.pair.spec, order.shop
    assert spec.draft is not None
    draft = opened(order, spec.draft)
    reason = untrainable(draft) if draft.gguf is None else "it is a GGUF file; a folder of safetensors can be"
    if not reason and not same_tokens(opened(order, spec.target).tokenizer(), draft.tokenizer()):
        reason = "its tokens differ from the target's, so it cannot learn the target's distribution"
    if reason:
        raise EngineError("model", f'The draft of pair "{order.pair.id}" cannot be trained: {reason}.')
    if adapted is None:
        adapted = draft.config.recipe.parameters > LARGEST_WHOLE
    session, target = loaded(order)
    plan = tune_plan(session.info, replies=order.replies, steps=order.steps, adapted=adapted)
    learnt, held_out = order.collected(session, target, plan, asked=[fingerprint(draft), adapted])
    del session
    gc.collect()  # on a GPU the training needs the memory of its layers
    course = Distilling(target, draft, adapted, shop.folder, held_out, length)
    done = 0
    order.report.know(phase="training")
    for at in course.run(learnt, order.steps, order.stopped):
        done = at.step
        order.report.know(accepted_before=at.before.rate, accepted=at.held_out.rate)
        words = f"step {at.step:,} of {at.steps:,} by {at.divergence}, loss {at.loss:.3f}"
        order.report.show(f"{words}, held out {at.held_out.rate:.0%} of drafts accepted", at.step / at.steps)
    order.check_stop(f"after step {done:,} of {order.steps:,}")
    result = course.result
    assert result is not None
    order.report.know(accepted=result.after.rate)
    put_draft(shop.finished, result.learner, draft)
    return result


BESIDE = (".json", ".jinja", ".model", ".txt")
"""Endings of the files beside the weights: settings, tokenizer, chat template."""
INDEX = ".index.json"
WEIGHTS = "model.safetensors"


def put_draft(folder: Path, learner: DraftLearner, draft: Checkpoint) -> None:
    """Write a trained draft with the files beside the weights of `draft`, whose dtype it keeps.

    Raises:
        ModelError: weights that the dtype has no numbers for.
        OSError: a file cannot be written.
    """
    dtype = draft.dtype or torch.bfloat16
    tensors = {name: weight.detach().to(dtype) for name, weight in learner.weights().items()}
    for name, weight in tensors.items():
        if not bool(weight.isfinite().all()):
            raise ModelError(f"The training went astray: {name} holds values that are no numbers. Begin anew.")
    for file in draft.folder.iterdir():
        if file.suffix in BESIDE and not file.name.endswith(INDEX) and file.is_file():
            shutil.copyfile(file, folder / file.name)
    put_tensors(folder / WEIGHTS, tensors, {"format": "pt"})

"""The parts of `specchat tune draft`: distilling on the target's replies, and measuring before and after."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem
from specchat.cli.tuning import JUDGED, TrainingData, TrainingOrder
from specchat.engine.errors import ForeignModel
from specchat.engine.options import Speculation
from specchat.tune.plan import LARGEST_WHOLE, tune_plan

if TYPE_CHECKING:
    from specchat.engine.model.checkpoint import Checkpoint
    from specchat.engine.pair import ModelSource
    from specchat.tune.distilling import Distilled


@dataclass(frozen=True)
class DraftOrder(TrainingOrder):
    """The strategy by which the draft is judged, and whether adapters are trained rather than all weights."""

    strategy: str
    adapted: bool | None

    @property
    def draft(self) -> "ModelSource":
        """The pair's draft.

        Raises:
            Problem: it has none.
        """
        if self.pair.spec.draft is None:
            raise Problem(f'Pair "{self.pair.id}" has no draft model to train.', ExitCode.UNUSABLE)
        return self.pair.spec.draft

    @property
    def speculation(self) -> Speculation:
        """The strategy with the pair's draft length."""
        return Speculation.of(self.strategy, self.pair.lengths.get(self.strategy))

    def refuse(self, reason: str) -> Problem:
        """A refusal to train for a reason."""
        return Problem(f'The draft of pair "{self.pair.id}" cannot be trained: {reason}.', ExitCode.UNUSABLE)


def distilled(order: DraftOrder) -> "Distilled":
    """Collect replies, train, and write the draft into the workshop.

    Raises:
        Problem: interrupted, no reply to learn from, or a draft that cannot be trained.
        EngineError: the pair cannot be loaded.
        OSError: a file cannot be written or read.
    """
    order.progress.show("starting ...")
    from specchat.engine.loading import load
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.engine.model.tokenizer import same_tokens
    from specchat.tune.distilling import Distilling
    from specchat.tune.draft import untrainable
    from specchat.tune.draft_files import put_draft
    from specchat.tune.rows import TrainingText
    from specchat.tune.target import FrozenTarget
    from specchat.tune.workshop import fingerprint

    shop, draft = order.shop, _opened(order, order.draft)
    target = _opened(order, order.pair.spec.target)
    if reason := untrainable(draft):
        raise order.refuse(reason)
    if not same_tokens(target.tokenizer(), draft.tokenizer()):
        raise order.refuse("its tokens differ from the target's, so it cannot learn the target's distribution")
    adapted = order.adapted if order.adapted is not None else draft.config.recipe.parameters > LARGEST_WHOLE
    asked = (order.chats, order.pair.sampling, fingerprint(draft), adapted)
    if shop.prepare("draft", fingerprint(target), asked):
        order.progress.note(f"{shop.folder} was of other models or of other prompts; it is begun anew.")
    session = load(replace(order.pair.spec, heads={}), order.show)
    model = session.target.model
    if not isinstance(model, CachedDecoder):
        raise order.refuse('its target runs on the GPU, and only one on the CPU can be learnt from: say device = "cpu"')
    plan = tune_plan(session.info, replies=order.replies, steps=order.steps, adapted=adapted)
    order.tell(plan, session.info.memory)
    judged = order.collected(session, model, (), held_out=True)
    learnt = order.collected(session, model, (), held_out=False)
    held_out = [TrainingText.read(path) for path in judged[:JUDGED]]
    length = order.speculation.draft_length
    course = Distilling(FrozenTarget(target, model), draft, adapted, shop.folder, held_out, length)
    done = 0
    order.progress.know(phase="training")
    for at in course.run(learnt, order.steps, lambda: order.interrupt.pressed):
        done = at.step
        order.progress.know(accepted_before=at.before.rate, accepted=at.held_out.rate)
        words = f"step {at.step:,} of {at.steps:,} by {at.divergence}, loss {at.loss:.3f}"
        order.progress.show(f"{words}, held out {at.held_out.rate:.0%} of drafts accepted", at.step / at.steps)
    order.check_stop(f"after step {done:,} of {order.steps:,}")
    result = course.result
    assert result is not None
    order.progress.know(accepted=result.after.rate)
    put_draft(shop.finished, result.learner, draft)
    return result


def registered(order: DraftOrder, result: "Distilled", data: TrainingData, toml: Path) -> list[str]:
    """Measure the draft, and put it on the shelf and into `toml` if it is faster for sure; both in sentences.

    Raises:
        Problem: interrupted, or a text that is not plain decoding's.
        EngineError: a draft cannot be used.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written.
    """
    from specchat.cli import tune_result
    from specchat.tune.gain import Side

    trained = replace(order.draft, path=str(order.shop.finished), repo=None, revision=None)
    before, after = (
        Side(replace(order.pair.spec, draft=draft, heads={}), [order.speculation]) for draft in (order.draft, trained)
    )
    line = (
        f"Held-out replies: {result.before.rate:.0%} of drafts accepted before, {result.after.rate:.0%} after; "
        f"{result.before.length:.2f} and {result.after.length:.2f} tokens a step."
    )
    made = tune_result.TuneResult(
        kind=order.strategy,
        key="draft",
        subject="The draft lies",
        files=order.shop.finished,
        before={"accepted": result.before.rate},
        after={"accepted": result.after.rate},
    )
    return [line, *tune_result.registered(order, made, tune_result.measured(order, before, after), data, toml)]


def _opened(order: DraftOrder, source: "ModelSource") -> "Checkpoint":
    """The checkpoint of a model of the pair.

    Raises:
        Problem: only another backend runs it.
    """
    from specchat.engine.hub import locate
    from specchat.engine.model.checkpoint import Checkpoint

    try:
        return Checkpoint.open(locate(source, order.show))
    except ForeignModel as error:
        raise order.refuse(error.reason) from None

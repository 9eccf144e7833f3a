"""The parts of `specchat tune heads`: training on the target's replies, and measuring."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from specchat.cli.tune_work import loaded
from specchat.cli.tuning import JUDGED, JUDGED_EVERY, TrainingData, TrainingOrder
from specchat.engine.options import Speculation
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Head
from specchat.tune.plan import training_plan

WHAT = "heads"


@dataclass(frozen=True)
class HeadsOrder(TrainingOrder):
    """The family of heads to train."""

    family: Head


def trained(order: HeadsOrder) -> list[str]:
    """Collect replies, train, and write the heads into the workshop; what was learnt, in sentences.

    Raises:
        Problem: interrupted, no reply to learn from, or a target that heads are not for.
        EngineError: the pair cannot be loaded.
        OSError: a file cannot be written or read.
    """
    order.progress.show("starting ...")
    from specchat.tune.families import FAMILIES, untrained
    from specchat.tune.rows import TrainingText, reply
    from specchat.tune.target import FrozenTarget
    from specchat.tune.trainee import accepted_length
    from specchat.tune.training import Training
    from specchat.tune.workshop import fingerprint, put_heads

    pair, shop, family = order.pair, order.shop, FAMILIES[order.family]
    checkpoint, session, model = loaded(order, WHAT)
    if shop.prepare(order.family, fingerprint(checkpoint), (order.chats, pair.sampling)):
        order.progress.note(f"{shop.folder} was of another target or of other prompts; it is begun anew.")
    plan = training_plan(session.info, family.size(model.config), order.replies, order.steps)
    order.tell(plan, session.info.memory)
    layers = family.layers(model.config.layers)
    judged = order.collected(session, model, layers, held_out=True)
    learnt = order.collected(session, model, layers, held_out=False)
    replies = [reply(path) for path in learnt]
    trainee = untrained(order.family, FrozenTarget(checkpoint, model), replies)
    training = Training(trainee, shop.state)
    held_out = [TrainingText.read(path) for path in judged[:JUDGED]]
    length = accepted_length(trainee, held_out)
    for at in training.run(learnt, order.steps, lambda: order.interrupt.pressed):
        if at.step % JUDGED_EVERY == 0 or at.step == at.steps:
            length = accepted_length(trainee, held_out)
        words = f"step {at.step:,} of {at.steps:,}, loss {at.loss:.3f}, held out {length:.2f} tokens a step"
        order.progress.show(words, at.step / at.steps)
    order.check_stop(f"after step {training.step:,} of {order.steps:,}")
    put_heads(shop.finished, trainee.published())
    weights = sum(parameter.numel() for parameter in trainee.parameters())
    return [
        f"{order.family} heads of {weights:,} weights learnt from {len(learnt):,} replies of "
        f"{sum(map(len, replies)):,} tokens in {training.step:,} steps.",
        f"On {len(held_out):,} held-out replies they get {length:.2f} tokens a step.",
    ]


def registered(order: HeadsOrder, lines: list[str], data: TrainingData, toml: Path) -> list[str]:
    """Measure the heads beside plain decoding, the draft and the heads before, and put them where drafts are put.

    Raises:
        Problem: interrupted, or a text that is not plain decoding's.
        EngineError: the heads cannot be used.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written.
    """
    from specchat.cli import tune_result
    from specchat.engine.pair import ModelSource
    from specchat.tune.gain import Side

    spec, family = order.pair.spec, order.family
    by_heads = [
        Speculation.of(name, order.pair.lengths.get(name))
        for name, info in STRATEGIES.items()
        if info.needs_head == family
    ]
    others = [Speculation(), Speculation.of("draft", order.pair.lengths.get("draft"))]
    old = {family: spec.heads[family]} if family in spec.heads else {}
    new = {family: ModelSource(path=str(order.shop.finished))}
    before = Side(replace(spec, heads=old), [*others, *(by_heads if old else [])])
    found = tune_result.measured(order, before, Side(replace(spec, heads=new), by_heads))
    result = tune_result.TuneResult("heads", f"heads.{family}", "The heads lie", order.shop.finished)
    lines += tune_result.registered(order, result, found, data, toml)
    if not found.gain.sure:
        path = json.dumps(str(order.shop.finished), ensure_ascii=False)
        lines += [
            f'To use the heads all the same, give the pair "{order.pair.id}" there the line below; a shipped pair is '
            "changed by one of the same id there, so copy its table first.",
            "",
            f"heads.{family} = {{ path = {path} }}",
        ]
    return lines

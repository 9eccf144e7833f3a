"""The tune of heads: trained on the target's replies, measured beside plain decoding, the draft and heads before."""

import gc
import json
from dataclasses import replace

from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair import ModelSource
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Head
from specchat.tune.families import FAMILIES, untrained
from specchat.tune.gain import Side
from specchat.tune.order import TuneOrder
from specchat.tune.outcome import TuneResult, measured, registered
from specchat.tune.plan import training_plan
from specchat.tune.rows import reply
from specchat.tune.trainee import accepted_length
from specchat.tune.training import Training
from specchat.tune.work import loaded
from specchat.tune.workshop import put_heads

JUDGED_EVERY = 50
"""Steps between two looks at held-out replies."""


def tuned(order: TuneOrder, family: Head) -> list[str]:
    """Train heads of a family, and register them if the pair is clearly faster with them.

    Raises:
        TuneStopped: it is to be stopped.
        Different: a text is not plain decoding's.
        EngineError: no reply to learn from, a target that heads are not for, or a pair that cannot be loaded.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written or read.
    """
    lines = _trained(order, family)
    spec, lengths = order.pair.spec, order.pair.lengths
    by_heads = [Speculation.of(name, lengths.get(name)) for name, of in STRATEGIES.items() if of.needs_head == family]
    others = [Speculation(), Speculation.of("draft", lengths.get("draft"))]
    old = {family: spec.heads[family]} if family in spec.heads else {}
    new = {family: ModelSource(path=str(order.shop.finished))}
    before = Side(replace(spec, heads=old), [*others, *(by_heads if old else [])])
    found = measured(order, before, Side(replace(spec, heads=new), by_heads))
    lines += registered(order, TuneResult("heads", f"heads.{family}", "The heads lie", order.shop.finished), found)
    if not found.gain.sure:
        path = json.dumps(str(order.shop.finished), ensure_ascii=False)
        lines += [
            f'To use the heads all the same, give the pair "{order.pair.id}" there the line below; a shipped pair is '
            "changed by one of the same id there, so copy its table first.",
            "",
            f"heads.{family} = {{ path = {path} }}",
        ]
    return lines


def _trained(order: TuneOrder, name: Head) -> list[str]:
    """Collect replies, train, and write the heads into the workshop; what was learnt, in sentences."""
    shop, family = order.shop, FAMILIES[name]
    session, target = loaded(order)
    plan = training_plan(session.info, family.size(target.config), order.replies, order.steps)
    learnt, held_out = order.collected(session, target, plan, family.layers(target.config.layers))
    del session
    gc.collect()  # on a GPU the training needs the memory of its layers
    replies = [reply(path) for path in learnt]
    trainee = untrained(name, target, replies)
    training = Training(trainee, shop.state)
    length = accepted_length(trainee, held_out)
    for at in training.run(learnt, order.steps, order.stopped):
        if at.step % JUDGED_EVERY == 0 or at.step == at.steps:
            length = accepted_length(trainee, held_out)
        words = f"step {at.step:,} of {at.steps:,}, loss {at.loss:.3f}, held out {length:.2f} tokens a step"
        order.report.show(words, at.step / at.steps)
    order.check_stop(f"after step {training.step:,} of {order.steps:,}")
    put_heads(shop.finished, trainee.published())
    weights = sum(parameter.numel() for parameter in trainee.parameters())
    return [
        f"{name} heads of {weights:,} weights learnt from {len(learnt):,} replies of "
        f"{sum(map(len, replies)):,} tokens in {training.step:,} steps.",
        f"On {len(held_out):,} held-out replies they get {length:.2f} tokens a step.",
    ]

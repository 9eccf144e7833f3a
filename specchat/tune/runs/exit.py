"""The tune of an early exit: an adapter through which a target's first layers draft."""

from dataclasses import replace

from torch import manual_seed
from torch.random import fork_rng

from specchat.engine.protocol.options import Speculation
from specchat.engine.strategies import STRATEGIES
from specchat.tune.exits import ExitLearner, exits, put_adapter, size
from specchat.tune.gain import Side
from specchat.tune.order import NEEDS, TuneOrder
from specchat.tune.outcome import TuneResult, measured, registered
from specchat.tune.plan import training_plan
from specchat.tune.training import Training
from specchat.tune.work import loaded

NAME = next(name for name, strategy in STRATEGIES.items() if "exits" in strategy.needs)
KEY, SEED = "exit", 7


def tuned(order: TuneOrder) -> list[str]:
    """Train the adapter, and register it if drafting by early exit is clearly faster.

    Raises:
        TuneStopped: it is to be stopped.
        Different: a text is not plain decoding's.
        EngineError: no reply to learn from, a target without an early exit, or a training that went astray.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written or read.
    """
    spec = order.pair.spec
    session, target = loaded(order)
    if session.runner.place != "cpu":
        raise order.refuse("on a GPU a pass runs from the first layer on", f"{NEEDS} on the CPU")
    places, layers = exits(target.config.layers, spec.exit_layer), target.config.layers
    if not places:
        raise order.refuse("the target has only 1 layer")
    plan = training_plan(session.info, size(target.config, places), order.replies, order.steps)
    learnt, held_out = order.collected(session, target, plan, places, [places])
    with fork_rng(devices=()):
        manual_seed(SEED)
        learner = ExitLearner(target, places)
    at_first = {one.layers: one for one in learner.choices(held_out)}
    training = Training(learner, order.shop.state)
    for at in training.run(learnt, order.steps, order.stopped):
        order.report.show(f"step {at.step:,} of {at.steps:,}, loss {at.loss:.3f}", at.step / at.steps)
    order.check_stop(f"after step {training.step:,} of {order.steps:,}")
    best = max(learner.choices(held_out), key=lambda one: one.times)
    put_adapter(order.shop.finished, learner, best.layers)
    before, after = {"right": at_first[best.layers].right}, {"right": best.right}
    line = (
        f"After {best.layers} of {layers} layers {best.right:.0%} of the tokens of held-out replies are right with the "
        f"adapter, and {before['right']:.0%} without it."
    )
    del session, target, learner, training
    by_exit = [Speculation.of(NAME, order.pair.lengths.get(NAME))]
    alone = replace(spec, draft=None, draft_vocabulary=None, heads={})
    found = measured(order, Side(alone, by_exit), Side(replace(alone, exit=str(order.shop.finished)), by_exit))
    result = TuneResult(KEY, KEY, "The adapter lies", order.shop.finished, before=before, after=after)
    return [line, *registered(order, result, found)]

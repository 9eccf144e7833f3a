"""`specchat tune exit`: trains an adapter through which a target's first layers draft, on prompts like the user's."""

from dataclasses import replace
from pathlib import Path

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, reports_errors
from specchat.cli.tune_result import TuneResult, measured, registered
from specchat.cli.tune_work import DATA_OPTIONS, TuneWork, begun, loaded, refused
from specchat.cli.tuning import JUDGED
from specchat.engine.options import Speculation
from specchat.engine.strategies import STRATEGIES

NAME = next(name for name, strategy in STRATEGIES.items() if "exits" in strategy.needs)
KIND, WHAT = "exit", "adapter"
STEPS, SEED = 600, 7


@click.command("exit")
@click.argument("pair", shell_complete=complete_pairs)
@with_options(DATA_OPTIONS)
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True, help="How long to train.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def exit_(pair: str, from_chats: bool, prompts: Path | None, replies: int, steps: int, models: Path | None) -> None:
    """Train an adapter through which the first layers of the target of PAIR draft, on its replies to prompts.

    The target itself stays as it is, and so does its text. An eighth of the prompts is held out. The adapter is written
    into models.toml if drafting by early exit is faster there beyond the interval. ctrl+c stops; the same command goes
    on from there, also to more --steps.
    """
    with begun(pair, KIND, WHAT, steps, prompts, from_chats, replies, models) as work:
        lines = _trained(work)
    Output().write("\n".join([*lines, ""]))


def _trained(work: TuneWork) -> list[str]:
    """Collect replies, train, measure and register; all in sentences.

    Raises:
        Problem: interrupted, no reply to learn from, or a target without an early exit.
        EngineError: the pair cannot be loaded, or the training went astray.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written or read.
    """
    order = work.order
    order.progress.show("starting ...")
    from torch import manual_seed
    from torch.random import fork_rng

    from specchat.tune.exits import ExitLearner, exits, put_adapter, size
    from specchat.tune.gain import Side
    from specchat.tune.plan import training_plan
    from specchat.tune.rows import TrainingText
    from specchat.tune.target import FrozenTarget
    from specchat.tune.training import Training
    from specchat.tune.workshop import fingerprint

    checkpoint, session, model = loaded(order, WHAT)
    places = exits(model.config.layers, order.pair.spec.exit_layer)
    if not places:
        raise refused(order.pair.id, WHAT, "the target has only 1 layer")
    plan = training_plan(session.info, size(model.config, places), order.replies, order.steps)
    order.tell(plan, session.info.memory)
    if order.shop.prepare(KIND, fingerprint(checkpoint), (order.chats, order.pair.sampling, places)):
        order.progress.note(f"{order.folder} was of another target or of other prompts; it is begun anew.")
    judged = order.collected(session, model, places, held_out=True)
    learnt = order.collected(session, model, places, held_out=False)
    held_out = [TrainingText.read(path) for path in judged[:JUDGED]]
    with fork_rng():
        manual_seed(SEED)
        learner = ExitLearner(FrozenTarget(checkpoint, model), places)
    at_first = {one.layers: one for one in learner.choices(held_out)}
    training = Training(learner, order.shop.state)
    for at in training.run(learnt, order.steps, lambda: order.interrupt.pressed):
        order.progress.show(f"step {at.step:,} of {at.steps:,}, loss {at.loss:.3f}", at.step / at.steps)
    order.check_stop(f"after step {training.step:,} of {order.steps:,}")
    best = max(learner.choices(held_out), key=lambda one: one.times)
    put_adapter(order.shop.finished, learner, best.layers)
    before = at_first[best.layers].right
    lines = [
        f"After {best.layers} of {model.config.layers} layers {best.right:.0%} of the tokens of held-out replies are "
        f"right with the adapter, and {before:.0%} without it."
    ]
    del session, model, learner, training
    by_exit = [Speculation.of(NAME, order.pair.lengths.get(NAME))]
    spec = replace(order.pair.spec, draft=None, draft_vocabulary=None, heads={})
    trained = replace(spec, exit=str(order.shop.finished))
    compared = measured(order, Side(spec, by_exit), Side(trained, by_exit))
    result = TuneResult(
        KIND,
        KIND,
        "The adapter lies",
        order.shop.finished,
        before={"right": before},
        after={"right": best.right},
    )
    return [*lines, *registered(order, result, compared, work.data, work.toml)]

"""`specchat tune swift`: searches what the target leaves out when it drafts for itself, on prompts like the user's."""

from dataclasses import replace
from pathlib import Path

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, reports_errors
from specchat.cli.tune_result import TuneResult, measured, registered
from specchat.cli.tune_work import DATA_OPTIONS, TuneWork, begun, loaded, refused
from specchat.engine.options import Speculation
from specchat.engine.strategies import STRATEGIES

NAME = next(name for name, strategy in STRATEGIES.items() if "skips" in strategy.needs)
WHAT = "skip set"
SETS = 300
ONLINE_TRIALS = 200
"""Trials of the search while writing, whose result is where this one begins."""
MORE = "More --sets, --replies or prompts closer to yours may help."


@click.command()
@click.argument("pair", shell_complete=complete_pairs)
@with_options(DATA_OPTIONS)
@click.option("--sets", type=click.IntRange(1), default=SETS, show_default=True, help="How many choices to try.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def swift(pair: str, from_chats: bool, prompts: Path | None, replies: int, sets: int, models: Path | None) -> None:
    """Search which layers the target of PAIR skips when it drafts for itself, on its replies to prompts.

    An eighth of the prompts is held out. The choice is written into models.toml if drafting with it is faster there,
    beyond the interval, than as the pair is: without a choice it searches from the beginning each time it is loaded.
    ctrl+c stops; the same command goes on from there, also to more --sets.
    """
    with begun(pair, NAME, WHAT, sets, prompts, from_chats, replies, models) as work:
        lines = _searched(work)
    Output().write("\n".join([*lines, ""]))


def _searched(work: TuneWork) -> list[str]:
    """Collect replies, search, measure and register; all in sentences.

    Raises:
        Problem: interrupted, no reply to learn from, or a target without layers to skip.
        EngineError: the pair cannot be loaded.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written or read.
    """
    order = work.order
    order.progress.show("starting ...")
    from specchat.tune.gain import Side
    from specchat.tune.skips import SkipTuning, layers_of, setting, skip_of
    from specchat.tune.workshop import fingerprint

    checkpoint, session, model = loaded(order, WHAT)
    if not (status := session.info.strategy(NAME)).available:
        raise refused(order.pair.id, WHAT, status.reason)
    if order.shop.prepare(NAME, fingerprint(checkpoint), (order.chats, order.pair.sampling)):
        order.progress.note(f"{order.folder} was of another target or of other prompts; it is begun anew.")
    order.collected(session, model, (), held_out=True)
    learnt = order.collected(session, model, (), held_out=False)
    search = SkipTuning(session.target, model.config.recipe, order.folder, learnt)
    order.progress.show("searching as while writing")
    first = order.pair.spec.skip or search.online(ONLINE_TRIALS)
    for at in search.run(order.steps, first, lambda: order.interrupt.pressed):
        words = f"choice {at.tried:,} of {at.sets:,}, at best an estimated {at.times:.2f} times plain"
        order.progress.show(words, at.tried / at.sets)
    order.check_stop("in the search")
    found, skipped = search.found, layers_of(skip_of(search.best))
    if found.times <= 1.0:
        return [
            f"Skipping layers would not beat plain decoding here: the best of {search.tried:,} is estimated at "
            f"{found.times:.2f} times its speed. {work.toml} stays as it is."
        ]
    lines = [
        f"Drafting skips {len(skipped.attention)} attention and {len(skipped.mlp)} MLP blocks of {model.config.layers} "
        f"layers. On {search.tokens:,} tokens of replies, {found.accepted:.0%} of drafts of {found.length} are right."
    ]
    del session, model, search
    by_itself = [Speculation.of(NAME, order.pair.lengths.get(NAME))]
    spec = replace(order.pair.spec, draft=None, draft_vocabulary=None, heads={})
    compared = measured(order, Side(spec, by_itself), Side(replace(spec, skip=skipped), by_itself))
    result = TuneResult(NAME, "skip", "", None, setting(skipped), advice=MORE)
    return [*lines, *registered(order, result, compared, work.data, work.toml)]

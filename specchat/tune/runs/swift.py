"""The tune of a skip set: the layers that a target skips when it drafts for itself."""

from dataclasses import replace

from specchat.engine.protocol.options import Speculation
from specchat.tune.gain import Side
from specchat.tune.order import TuneOrder
from specchat.tune.outcome import TuneResult, measured, registered
from specchat.tune.skips import SkipTuning, layers_of, setting, skip_of
from specchat.tune.work import loaded

ONLINE_TRIALS = 200
"""Trials of the search while writing, whose result is where this one begins."""
MORE = "More --sets, --replies or prompts closer to yours may help."


def tuned(order: TuneOrder) -> list[str]:
    """Search for the set, by the strategy that the order's kind names, and register it if it is clearly faster.

    Raises:
        TuneStopped: it is to be stopped.
        Different: a text is not plain decoding's.
        EngineError: no reply to learn from, a target without layers to skip, or a pair that cannot be loaded.
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written or read.
    """
    name, spec = order.kind, order.pair.spec
    session, target = loaded(order)
    if not (status := session.info.strategy(name)).available:
        raise order.refuse(status.reason)
    learnt, _ = order.collected(session, target)
    search = SkipTuning(session.target, target.config.recipe, order.folder, learnt)
    order.report.show("searching as while writing")
    for at in search.run(order.steps, spec.skip or search.online(ONLINE_TRIALS), order.stopped):
        words = f"choice {at.tried:,} of {at.sets:,}, at best an estimated {at.times:.2f} times plain"
        order.report.show(words, at.tried / at.sets)
    order.check_stop("in the search")
    best, skipped = search.found, layers_of(skip_of(search.best))
    if best.times <= 1.0:
        return [
            f"Skipping layers would not beat plain decoding here: the best of {search.tried:,} is estimated at "
            f"{best.times:.2f} times its speed. {order.toml} stays as it is."
        ]
    lines = [
        f"Drafting skips {len(skipped.attention)} attention and {len(skipped.mlp)} MLP blocks of "
        f"{target.config.layers} layers. On {search.tokens:,} tokens of replies, {best.accepted:.0%} of drafts of "
        f"{best.length} are right."
    ]
    del session, target, search
    by_itself = [Speculation.of(name, order.pair.lengths.get(name))]
    alone = replace(spec, draft=None, draft_vocabulary=None, heads={})
    found = measured(order, Side(alone, by_itself), Side(replace(alone, skip=skipped), by_itself))
    return [*lines, *registered(order, TuneResult(name, "skip", "", None, setting(skipped), advice=MORE), found)]

"""Measures `specchat recommend` against an exhaustive sweep: the speed of its choice, found in a tenth of the time.

    python -m measure.recommend PAIR [--models FILE] [--prompts FILE] [--limit 32] [--repeats 2]

The sweep answers all prompts by all strategies, at all their lengths and under all settings that keep the text. The
choice of the search is then looked up in the sweep. As the best of many noisy figures is partly luck, choice and best
then answer all prompts once more, in turns.
"""

from pathlib import Path
from time import perf_counter

import click

from specchat.bench.contender import BenchPrompt
from specchat.bench.ours import Ours
from specchat.bench.prompts import read_prompts, shipped_prompts, spread
from specchat.bench.race import TOKENS, ContenderRace
from specchat.bench.report import describe
from specchat.config.catalog import read_catalog
from specchat.config.paths import user_paths
from specchat.engine.loading import load
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.recommend.search import Recommendations, RecommendSearch, contenders
from specchat.recommend.variants import variants

DUELS = 10
"""Replies to each prompt of the choice and of the sweep's best, where these differ."""


@click.command()
@click.argument("pair")
@click.option("--models", type=click.Path(path_type=Path))
@click.option("--prompts", type=click.Path(path_type=Path))
@click.option("--limit", default=32)
@click.option("--repeats", default=2)
def main(pair: str, models: Path | None, prompts: Path | None, limit: int, repeats: int) -> None:
    """Sweep, search in a tenth of the time, and compare."""
    paths = user_paths()
    found = read_catalog(paths, models).find(pair)
    session = load(found.spec, lambda _: None)
    made = [
        (one, tuple(session.tokenizer.prompt(one.messages))) for one in read_prompts(prompts or shipped_prompts(pair))
    ]
    fitting = [(one, ids) for one, ids in made if len(ids) + TOKENS <= session.info.context]
    kept = {one.id for one in spread([one for one, _ in fitting], limit)}
    chosen = [BenchPrompt(one.id, one.category, one.messages, ids) for one, ids in fitting if one.id in kept]
    plain, every = Ours(session, Speculation(), Sampling()), contenders(session, found)
    others = [*variants(found, bool(session.info.load.gpu), paths.tuned, models or paths.models_file)]
    for variant in others:
        if variant.same_text:
            other = load(variant.spec, lambda _: None)
            every += [
                Ours(other, one.speculation, Sampling(), name=f"{one.name}, {variant.name}")
                for one in contenders(other, found)
                if variant.affects(one.speculation.strategy)
            ]
    started = perf_counter()
    sweep = ContenderRace(plain, every, chosen).sweep(repeats, lambda _: None)
    spent = perf_counter() - started
    started = perf_counter()
    search = RecommendSearch(found, session, [one.messages for one in chosen], lambda *_: None)
    choice = _choice(search.run(spent / 10, others, lambda: False))
    searched = perf_counter() - started
    best, times = max(sweep, key=lambda one: one.times), {one.name: one.times for one in sweep}
    click.echo(describe(("specchat", "torch")))
    click.echo(f"{pair}, {len(every)} contenders, {len(chosen)} prompts, {repeats} times: {spent:.0f} s")
    click.echo(f"best of the sweep: {best.name}, {best.times:.3f} of plain ({best.low:.3f}-{best.high:.3f})")
    click.echo(
        f"search of {searched:.0f} s: {choice}, in the sweep {times[choice]:.3f}, "
        f"{times[choice] / best.times:.3f} of the best"
    )
    if choice != best.name:
        two = [one for one in every if one.name in (choice, best.name)]
        duel = ContenderRace(plain, two, chosen)
        duel.sweep(DUELS, lambda _: None)
        (beside,) = duel.beside(best.name)
        click.echo(f"the two in turns: {beside.times:.3f} of the best ({beside.low:.3f}-{beside.high:.3f})")


def _choice(found: Recommendations) -> str:
    """The contender of the sweep that is recommended."""
    for one in found.variants:
        if one.variant.same_text and one.pays:
            return one.speed.name
    return found.best.name


if __name__ == "__main__":
    main()

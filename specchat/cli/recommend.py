"""`specchat recommend`: measures what drafts fastest here on prompts like the user's, and sets it in models.toml."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import FOLDER, PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.cli.tuning import data_of
from specchat.engine.options import Message

if TYPE_CHECKING:
    from specchat.bench.halving import ContenderSpeed, HalvingProgress
    from specchat.bench.ours import Ours
    from specchat.config.catalog import Pair
    from specchat.engine.session import Session

MINUTES = 3.0
MOST_PROMPTS = 64
CLEAR = 1.03
"""A choice is written if it is faster than the present one by this factor."""


@click.command()
@click.argument("pair", required=False, shell_complete=complete_pairs)
@click.option("--chats", "from_chats", is_flag=True, help="Measure on the prompts of your saved chats.")
@click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".')
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=MINUTES, show_default=True, help="Time to measure."
)
@click.option("--dry-run", is_flag=True, help="Leave models.toml as it is.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def recommend(
    pair: str | None, from_chats: bool, prompts: Path | None, minutes: float, dry_run: bool, models: Path | None
) -> None:
    """Measure which strategy and draft length are fastest for PAIR here, and write them into models.toml.

    All strategies that the pair can use answer a few prompts beside plain decoding. The faster half answers twice as
    many, and so on, until one is left or the time is over. PAIR is the default pair unless given.
    """
    from specchat.cli.prepare import read_catalog
    from specchat.config.paths import user_paths
    from specchat.engine.backends import REMOTE_BACKEND

    paths = user_paths()
    catalog = read_catalog(paths, models)
    found = ready(catalog.find(pair or catalog.default), models)
    if found.spec.backend == REMOTE_BACKEND:
        raise Problem(
            f'Pair "{found.id}" runs on a server, which drafts as it was started. See specchat serve-command.',
            ExitCode.UNUSABLE,
        )
    data, progress = data_of(found.id, prompts, from_chats), ProgressLine()
    try:
        measured = _search(found, data.chats, 60 * minutes, progress)
    finally:
        progress.clear()
    toml = models or paths.models_file
    lines = [_table(measured), *_decision(found, measured, toml, dry_run), f"Measured on {data.words}."]
    Output().write("\n".join(lines) + "\n")


def _search(
    pair: "Pair", chats: Sequence[tuple[Message, ...]], seconds: float, progress: ProgressLine
) -> "list[ContenderSpeed]":
    """All strategies and lengths, the best first.

    Raises:
        Problem: interrupted, no prompt fits, or a text that is not plain decoding's.
        EngineError: the pair cannot be loaded.
    """
    progress.show("starting ...")
    from random import Random

    from specchat.bench.contender import BenchPrompt, Different
    from specchat.bench.halving import TOKENS, Halving
    from specchat.bench.ours import Ours
    from specchat.engine.loading import load
    from specchat.engine.options import Sampling, Speculation

    session = load(pair.spec, lambda loading: progress.show(loading.what, loading.fraction))
    made = [(str(i), chat, tuple(session.tokenizer.prompt(chat))) for i, chat in enumerate(chats)]
    fitting = [BenchPrompt(n, "", chat, ids) for n, chat, ids in made if len(ids) + TOKENS <= session.info.context]
    if not fitting:
        raise Problem(f"No prompt leaves room for {TOKENS} tokens. Give other --prompts.", ExitCode.USAGE)
    Random(7).shuffle(fitting)  # files are often sorted by category
    course = Halving(Ours(session, Speculation(), Sampling()), contenders(session, pair), fitting[:MOST_PROMPTS])
    with Interrupt() as interrupt:

        def notify(at: "HalvingProgress") -> None:
            if interrupt.pressed:
                raise Problem("Stopped. models.toml is as it was.", ExitCode.INTERRUPTED)
            what = f"round {at.round}, {at.left} left" if at.round else "warming up"
            progress.show(f"{what}: {at.contender}")

        try:
            return course.run(seconds, notify)
        except Different as error:
            raise Problem(f"The text by {error} differs from plain decoding's.", ExitCode.DIFFERENT) from None


def contenders(session: "Session", pair: "Pair") -> "list[Ours]":
    """Each available strategy at its own and the pair's draft length, those that draft by a model at others too."""
    from specchat.bench.ours import Ours
    from specchat.engine.options import Sampling, Speculation
    from specchat.engine.strategies import STRATEGIES, delegates
    from specchat.engine.strategy import MAX_DRAFT_LENGTH

    made: dict[str, Ours] = {}
    for status in session.info.strategies:
        if not status.available or status.name == Speculation().strategy:
            continue
        strategy = STRATEGIES[status.name]
        own = pair.lengths.get(status.name, strategy.draft_length)
        lengths = {own, strategy.draft_length}
        if not delegates(status.name):
            lengths |= {max(1, own // 2), min(MAX_DRAFT_LENGTH, 2 * own)}
        for length in sorted(lengths):
            one = Ours(session, Speculation.of(status.name, length), Sampling())
            made[one.name] = one
    return [*made.values()]


def _table(measured: "list[ContenderSpeed]") -> str:
    """A row per contender."""
    from specchat.bench.table import aligned

    rows = [("", "x plain", "95 %", "prompts")]
    rows += [(one.name, f"{one.times:.2f}", f"{one.low:.2f}-{one.high:.2f}", str(one.prompts)) for one in measured]
    return aligned(rows)


def _decision(pair: "Pair", measured: "list[ContenderSpeed]", toml: Path, dry_run: bool) -> list[str]:
    """The choice in sentences; it is written unless `dry_run`."""
    from specchat.engine.options import Speculation
    from specchat.engine.strategies import delegates, labelled

    by_name = {one.name: one for one in measured}
    present = Speculation.of(pair.strategy, pair.draft_length)
    now = by_name.get(labelled(present.strategy, present.draft_length))
    best = max((one for one in measured if one.prompts == measured[0].prompts), key=lambda one: one.times)
    speeds = f"{best.name} writes {best.times:.2f} times as fast as plain decoding"
    if best.times <= 1.0:
        return [f"No strategy is faster than plain decoding here: the nearest, {best.name}, has {best.times:.2f}."]
    others = f"The pair has {now.name}, with {now.times:.2f}." if now is not None else ""
    if now is not None and delegates(present.strategy):
        others += " It learns within a chat, and each of these replies was a new one."
    if now is not None and best.times < CLEAR * now.times:
        return [f"{speeds}. {others}", f"That is no clear gain, so {toml} stays as it is."]
    lines = [f"{speeds}. {others}".rstrip()]
    rival = next((one for one in measured if one.name != best.name and one.high > best.low), None)
    if rival is not None:
        lines.append(f"More measuring could still choose {rival.name} ({rival.low:.2f}-{rival.high:.2f}).")
    if dry_run:
        return lines
    from specchat.models.declare import set_strategy

    strategy, _, length = best.name.partition(" x")
    set_strategy(toml, pair.id, strategy, int(length) if length else None)
    return [*lines, f'Pair "{pair.id}" in {toml} now has it.']

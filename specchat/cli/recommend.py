"""`specchat recommend`: measures what drafts fastest here on prompts like the user's, and sets it in models.toml."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.download import can_ask, ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.json_lines import JsonLines
from specchat.cli.options import FOLDER, PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.cli.tune_work import data_of
from specchat.figures import interval
from specchat.recommend.decision import Recommended, check_lines, decided
from specchat.recommend.search import Recommendations, RecommendSearch, SearchStopped, VariantSpeed
from specchat.recommend.variants import Variant, variants

if TYPE_CHECKING:
    from specchat.bench.race import ContenderSpeed
    from specchat.config.catalog import Pair

MINUTES = 3.0


@click.command()
@click.argument("pair", required=False, shell_complete=complete_pairs)
@click.option("--chats", "from_chats", is_flag=True, help="Measure on the prompts of your saved chats.")
@click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".')
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=MINUTES, show_default=True, help="Time to measure."
)
@click.option("--decide", is_flag=True, help="Go through the checks that decide on drafting, with the figures here.")
@click.option("--dry-run", is_flag=True, help="Leave models.toml as it is.")
@click.option("--json", "as_json", is_flag=True, help="Print progress and result as JSON lines.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def recommend(
    pair: str | None,
    from_chats: bool,
    prompts: Path | None,
    minutes: float,
    decide: bool,
    dry_run: bool,
    as_json: bool,
    models: Path | None,
) -> None:
    """Measure what is fastest for PAIR here, and write it into models.toml; without PAIR, say which pair suits here.

    All strategies that the pair can use answer a few prompts beside plain decoding. The faster half answers twice as
    many, and so on. Other settings are then measured beside the best: quantised drafts, a draft on the CPU, what was
    tuned. What would change the text is only suggested.
    """
    from specchat.cli.pairs import declared_pair
    from specchat.config.errors import ConfigError
    from specchat.config.paths import user_paths
    from specchat.engine.backends import REMOTE_BACKEND

    if pair is None:
        from specchat.cli.models_here import here
        from specchat.recommend.machine import machine_lines

        known = here(models)
        Output().write("\n".join(machine_lines(known.catalog, known.library)) + "\n")
        return
    paths = user_paths()
    found = ready(declared_pair(pair, models), models)
    if found.spec.backend == REMOTE_BACKEND:
        raise Problem(
            f'Pair "{found.id}" runs on a server, which drafts as it was started. See specchat serve-command.',
            ExitCode.UNUSABLE,
        )
    data, toml = data_of(found.id, prompts, from_chats), models or paths.models_file
    progress = JsonLines() if as_json else ProgressLine()
    try:
        progress.show("starting ...")
        from torch.cuda import device_count

        from specchat.engine.loading import load

        session = load(found.spec, progress.loading)
        gpus = device_count() if session.info.load.gpu else 0
        others = [*variants(found, gpus, paths.tuned, toml)]
        search = RecommendSearch(found, session, data.chats, progress.show)
        measured = _searched(search, 60 * minutes, others)
        checks = check_lines(search, measured, progress.show) if decide else []
    finally:
        progress.clear()
    decision = decided(found, measured)
    failed, lines = None, [*decision.lines, *checks, f"Measured on {data.words}."]
    try:
        lines[len(decision.lines) : len(decision.lines)] = _written(found, decision, toml, dry_run)
        if decision.suggested is not None:
            lines += _suggested(decision.suggested, measured.best.name, toml, ask=not dry_run and not as_json)
    except ConfigError as error:
        failed = error  # told below the table, which took minutes
    if as_json:
        written = decision.choice is not None and not dry_run and failed is None
        progress.result(**_as_json(found, measured, decision, lines, written))
    else:
        Output().write("\n".join([_table(measured.strategies), *_others(measured), *lines]) + "\n")
    if failed is not None:
        raise failed


def _searched(search: RecommendSearch, seconds: float, others: list[Variant]) -> Recommendations:
    """Search until the time is over.

    Raises:
        Problem: interrupted, or a text that is not plain decoding's.
    """
    from specchat.bench.contender import Different

    with Interrupt() as interrupt:
        try:
            return search.run(seconds, others, lambda: interrupt.pressed)
        except SearchStopped:
            raise Problem("Stopped. models.toml is as it was.", ExitCode.INTERRUPTED) from None
        except Different as error:
            raise Problem(f"The text by {error} differs from plain decoding's.", ExitCode.DIFFERENT) from None


def _written(pair: "Pair", decision: Recommended, toml: Path, dry_run: bool) -> list[str]:
    """Write a choice, and say so.

    Raises:
        ConfigError: models.toml cannot be written.
    """
    if decision.choice is None or dry_run:
        return []
    from specchat.models.declare import set_strategy

    if decision.variant is not None:
        decision.variant.variant.write(toml)
    set_strategy(toml, pair.id, *decision.choice)
    return [f'Pair "{pair.id}" in {toml} now has it.']


def _suggested(one: VariantSpeed, best: str, toml: Path, ask: bool) -> list[str]:
    """Suggest a setting that changes the text, and write it only after a yes."""
    words = (
        f"With its {one.variant.name}, {one.case} would write {one.speed.times:.2f} times as fast as {best} does "
        f"({interval(one.speed.low, one.speed.high)}). The text would be another: that of a target of other weights."
    )
    keys = " and ".join(f'{key} = "{value}"' for key, value in one.variant.described()["keys"].items())
    place = f'of the {one.variant.key} of "{one.variant.spec.id}" in {toml}'
    if ask and can_ask() and click.confirm(f"{words}\nSet {keys} {place}?", default=False, err=True):
        one.variant.write(toml)
        return [f'Pair "{one.variant.spec.id}" in {toml} now has its {one.variant.name}.']
    return [words, f"To have it, set {keys} {place}."]


def _table(measured: "list[ContenderSpeed]") -> str:
    """A row per contender."""
    from specchat.bench.table import aligned

    rows = [("", "x plain", "95 %", "prompts")]
    rows += [(one.name, f"{one.times:.2f}", interval(one.low, one.high), str(one.prompts)) for one in measured]
    return aligned(rows)


def _others(found: Recommendations) -> list[str]:
    """The table of other settings, and those that were left out."""
    from specchat.bench.table import aligned

    lines = []
    if found.variants:
        rows = [(f"beside {found.best.name}", "x that", "95 %", "prompts")]
        for one in found.variants:
            note = "" if one.variant.same_text else " (other text)"
            speed = one.speed
            rows.append((speed.name + note, f"{speed.times:.2f}", interval(speed.low, speed.high), str(speed.prompts)))
        lines.append(aligned(rows))
    lines += [f"Not measured: {name} ({reason})." for name, reason in found.left_out.items()]
    return lines


def _as_json(
    pair: "Pair", found: Recommendations, decision: Recommended, lines: list[str], written: bool
) -> dict[str, Any]:
    choice = None if decision.choice is None else dict(zip(("strategy", "length"), decision.choice, strict=True))
    variant = decision.variant.variant if decision.variant is not None else None
    suggested = decision.suggested.variant.name if decision.suggested is not None else ""
    return {
        "pair": pair.id,
        "rows": [[one.name, one.times, one.low, one.high, one.prompts] for one in found.strategies],
        "others": [
            [one.speed.name, one.speed.times, one.speed.low, one.speed.high, one.speed.prompts, one.variant.same_text]
            for one in found.variants
        ],
        "left_out": found.left_out,
        "lines": lines,
        "choice": choice,
        "setting": variant and variant.described(),
        "suggested": suggested,
        "written": written,
    }

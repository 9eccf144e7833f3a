"""`specchat bench`: how fast each strategy is here, and other programs with the same weights."""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from specchat.bench.peers import PEERS, peer, reason, theirs
from specchat.bench.prompts import read_prompts, shipped_prompts, spread
from specchat.cli.bench_shapes import SHAPES_OPTIONS, check_options, run_shapes
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import (
    FOLDER,
    PAIR_OPTIONS,
    SAMPLING_OPTIONS,
    WRITABLE,
    Named,
    Passing,
    with_options,
)
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.cli.wishes import Wishes
from specchat.engine.protocol.options import ACCEPTANCES, Acceptance, Sampling, Speculation
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from specchat.installing import install_command

if TYPE_CHECKING:
    from specchat.bench.decide import Decided
    from specchat.bench.report import BenchReport

LIMIT, REPEATS, TOKENS = 16, 2, 96
STRANGE = {"cases": "--strategy", "against": "--against", "plot_file": "--plot"}
"""Options that have no meaning with --decide."""


class Case(NamedTuple):
    """A strategy to measure; a length of None is the pair's, or else the strategy's own."""

    strategy: str
    draft_length: int | None
    acceptance: Acceptance

    def of(self, lengths: Mapping[str, int]) -> Speculation:
        """With the pair's `lengths` by strategy."""
        return Speculation.of(self.strategy, self.draft_length or lengths.get(self.strategy), self.acceptance)


class CaseType(click.ParamType[Case]):
    """A strategy, with a draft length and how drafts are judged if wanted: draft, draft:8, draft:8:block."""

    name = "strategy[:length[:acceptance]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Case:
        if isinstance(value, Case):
            return value
        strategy, *more = str(value).split(":", 2)
        Named(list(STRATEGIES)).convert(strategy, param, ctx)
        if more and not (more[0].isdigit() and 1 <= int(more[0]) <= MAX_DRAFT_LENGTH):
            self.fail(f'"{more[0]}" is not a draft length from 1 to {MAX_DRAFT_LENGTH}.', param, ctx)
        acceptance = Named(ACCEPTANCES).convert(more[1], param, ctx) if more[1:] else ACCEPTANCES[0]
        return Case(strategy, int(more[0]) if more else None, cast(Acceptance, acceptance))


@click.group(cls=Passing, invoke_without_command=True)
@with_options(PAIR_OPTIONS)
@click.option(
    "--strategy",
    "cases",
    type=CaseType(),
    multiple=True,
    help="Measure this one; may be given again. Plain decoding always is; given here, twice, as a control.",
)
@with_options(SAMPLING_OPTIONS)
@click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".')
@click.option("--general", is_flag=True, help="Prompts for a real model instead of those in the demo pair's reach.")
@click.option("--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="How many prompts.")
@click.option("--repeats", type=click.IntRange(1), default=REPEATS, show_default=True, help="Replies to each prompt.")
@click.option(
    "--within",
    type=click.FloatRange(0, min_open=True),
    metavar="PERCENT",
    help="Stop repeating a prompt once its ratios to plain are known so well, at 95 %.",
)
@click.option("--tokens", type=click.IntRange(2), default=TOKENS, show_default=True, help="The longest reply.")
@click.option("--against", type=Named(list(PEERS)), multiple=True, help="Measure this program too, in the same run.")
@click.option("--decide", is_flag=True, help="Say who should draft here, how far, and when a draft pays.")
@click.option("--json", "json_file", type=WRITABLE, metavar="FILE", help="Write all figures and replies there.")
@click.option("--plot", "plot_file", type=WRITABLE, metavar="FILE", help="Draw the speed-ups; .png or .svg.")
@with_options(SHAPES_OPTIONS)
@click.pass_context
@reports_errors
def bench(ctx: click.Context, /, **options: Any) -> None:
    """Measure every strategy against plain decoding, side by side.

    Each prompt is answered by every strategy in turn, from empty caches. Figures are medians over prompts of ratios
    within a prompt; every text is compared with plain decoding's.
    """
    if ctx.invoked_subcommand is not None:
        return
    from specchat.cli.prepare import prepare

    check_options(ctx)
    if options["decide"] and (stray := [option for name, option in STRANGE.items() if options[name]]):
        raise click.UsageError(f"{stray[0]} has no meaning with --decide, which weighs all that the pair has.")
    _check_plot(options["plot_file"])
    if options["shapes"]:
        run_shapes(options["shapes"], options["layers"], options["quant"], options["assumed"], options["json_file"])
        return
    peers = {name: peer(name) for name in options["against"]}
    wishes = Wishes.of(options)
    prepared = prepare(wishes)
    pair = ready(prepared.pair, wishes.models)
    chosen = options["prompts"] or shipped_prompts(pair.id, options["general"])
    prompts = spread(read_prompts(chosen), options["limit"])
    sampling = _sampling(options)
    with Interrupt() as interrupt:
        progress = ProgressLine()
        progress.show("starting ...")
        from specchat.bench.decide_text import decided_text
        from specchat.bench.pair import measured, ours, usable
        from specchat.bench.report import write_json, write_plot
        from specchat.engine.loading import load

        session = load(pair.spec, progress.loading)
        if session.info.notes.warning:
            progress.note(session.info.notes.warning)
        fitting = usable(session, prompts, options["tokens"])
        if left_out := len(prompts) - len(fitting):
            progress.note(f"{left_out} of {len(prompts)} prompts do not fit the context and are left out.")
        contenders = ours(session, _cases(options["cases"], session.info, pair.lengths), sampling)
        notes = []
        for name, module in peers.items():
            progress.show("loading the models once more, for the other program")
            try:
                contenders += theirs(module, session, pair.spec, sampling)
            except Exception as error:
                notes.append(f"{name} could not be loaded and is left out: {reason(error)}")
        most, repeats, within = options["tokens"], options["repeats"], (options["within"] or 0.0) / 100
        report = measured(session, contenders, fitting, repeats, most, progress.show, lambda: interrupt.pressed, within)
        report.notes += notes
        progress.clear()
        decided = _decided(report) if options["decide"] else None
        if decided is not None and len(session.info.load.forms) > 1:
            from specchat.bench.other_rows import other_rows
            from specchat.models import measured as roundings

            known = roundings.known(prepared.paths.roundings, pair.spec.target.label)
            prices = {form: str(price) for form, price in known.items()}
            report.notes += other_rows(pair.spec, session, prices, progress.loading)
            progress.clear()
        Output().write(report.text() if decided is None else decided_text(decided, report.head, report.notes))
        if options["json_file"]:
            write_json(report, options["json_file"], decided)
        if options["plot_file"] and report.samples:
            write_plot(report, options["plot_file"])
    if report.different:
        raise Problem(f"The text differs from plain decoding's: {', '.join(report.different)}.", ExitCode.DIFFERENT)
    if report.interrupted:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


@bench.command("verify-cost")
@with_options(PAIR_OPTIONS)
@click.option("--json", "json_file", type=WRITABLE, metavar="FILE", help="Write the figures there.")
@reports_errors
def verify_cost_command(json_file: Path | None, **options: Any) -> None:
    """Measure what a step costs that checks 1 to 16 tokens."""
    from specchat.cli.prepare import prepare

    wishes = Wishes.of(options)
    pair = ready(prepare(wishes).pair, wishes.models)
    with Interrupt() as interrupt:
        progress = ProgressLine()
        progress.show("starting ...")
        from specchat.bench.report import PACKAGES, describe
        from specchat.bench.table import cost_table
        from specchat.bench.verify_cost import verify_cost
        from specchat.engine.loading import load

        session = load(pair.spec, progress.loading)
        costs = verify_cost(
            session.runner, lambda part: progress.show("checking 1 to 16 tokens", part), lambda: not interrupt.pressed
        )
        progress.clear()
        machine = describe(PACKAGES)
        Output().write(f"{machine}\n{session.info.name} on {session.info.load.device}\n\n{cost_table(costs)}")
        if json_file:
            figures = {"schema": 1, "machine": machine, "pair": pair.id, "verify_cost": [asdict(c) for c in costs]}
            json_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if interrupt.pressed:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _cases(given: tuple[Case, ...], info: PairInfo, lengths: Mapping[str, int]) -> list[Speculation]:
    """The given cases, or all that the pair has; plain decoding among these is no control."""
    if given:
        return [case.of(lengths) for case in given]
    every = (Case(s.name, None, ACCEPTANCES[0]).of(lengths) for s in info.strategies if s.available)
    return [case for case in every if case != Speculation()]


def _sampling(options: dict[str, Any]) -> Sampling:
    """Greedy, whatever the pair says, unless the command line asks for something else."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    given = {name: options[name] for name in names if options[name] is not None}
    return Sampling(seed=options["seed"] or 0, **given)


def _check_plot(path: Path | None) -> None:
    if path is None:
        return
    from specchat.bench.report import ENDINGS

    if path.suffix.lower() not in ENDINGS:
        raise Problem(f"{path} must end in {' or '.join(ENDINGS)}.", ExitCode.USAGE)
    if importlib.util.find_spec("matplotlib") is None:
        raise Problem(f"--plot needs matplotlib: {install_command('specchat[bench]')}.", ExitCode.USAGE)


def _decided(report: "BenchReport") -> "Decided | None":
    """The decision; None, and a note in the report, where the cost of checks was not measured."""
    from specchat.bench.decide import decide

    if not report.verify_cost:
        report.notes.append("nothing is decided: what checks cost was not measured")
        return None
    return decide(report.samples, report.verify_cost)

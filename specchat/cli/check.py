"""`specchat check`: is every strategy's text the one that plain decoding writes?"""

from datetime import date
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from specchat import figures
from specchat.bench import DEMO_PROMPTS
from specchat.bench.prompts import ChatPrompt, read_prompts, shipped_prompts, spread
from specchat.cli.completion import complete_pairs
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import FOLDER, PAIR_OPTIONS, Named, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.cli.wishes import Wishes
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.protocol.options import Acceptance
from specchat.engine.protocol.pair import Activations, PairSpec
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.requests import Count

if TYPE_CHECKING:
    from specchat.engine.check import CheckResult
    from specchat.engine.check_ratio import RatioResult

LIMIT = 12
MEASURE = "measure"
"""Value of --activations without a form."""


@click.command()
@with_options(PAIR_OPTIONS[:-1])
@click.option(
    "--activations",
    type=Named((*get_args(Activations), MEASURE)),
    is_flag=False,
    flag_value=MEASURE,
    metavar=f"[{'|'.join(get_args(Activations))}]",
    help="Form of the rows; alone: measure what rounding them does to the target.",
)
@click.option("--full", is_flag=True, help="All prompts, samplings and draft lengths; can take hours.")
@click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".')
@click.option(
    "--against",
    metavar="ID",
    shell_complete=complete_pairs,
    help="For a pair on a server: compare with this pair, the same model without drafting.",
)
@click.option("--limit", type=click.IntRange(1), help=f"How many prompts to take; {LIMIT} unless --full.")
@reports_errors
def check(full: bool, prompts: Path | None, against: str | None, limit: int | None, **options: Any) -> None:
    """Compare every strategy's replies with plain decoding's, token by token, greedy and sampled, in two turns.

    Replies with ratio and block acceptance follow, compared with the target's own distribution. The prompts are taken
    evenly from the file, by default from those that come with the demo pair; a quick check ends before the last where
    they would take long. A server's replies are compared with those of the same model without drafting.
    """
    from specchat.cli.check_server import check_server
    from specchat.cli.prepare import prepare

    measures = options["activations"] == MEASURE
    wishes = Wishes.of(options | {"activations": None} if measures else options)
    prepared = prepare(wishes)
    pair = ready(prepared.pair, wishes.models)
    other = against or pair.plain
    reference = ready(prepared.named(other), wishes.models).spec if other else None
    if reference is not None and pair.spec.target.server is None:
        raise click.UsageError(
            "--against goes with a pair that a server runs: others are compared with plain decoding."
        )
    if measures:
        _measure(pair.spec, read_prompts(prompts or shipped_prompts(pair.id)), prepared.paths.roundings)
        return
    known = read_prompts(prompts or DEMO_PROMPTS)
    chosen = spread(known, limit or (len(known) if full else LIMIT))
    with Interrupt() as interrupt:
        if pair.spec.target.server is not None:
            holds = check_server(pair.spec, reference, chosen, full, interrupt)
        else:
            holds = _run(pair.spec, chosen, full, Output(), interrupt)
    if not holds:
        raise click.exceptions.Exit(ExitCode.DIFFERENT)
    if interrupt.pressed:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _measure(pair: PairSpec, prompts: list[ChatPrompt], file: Path) -> None:
    """Measure what rounding rows does to a pair's target, report it, and keep it in `file`."""
    if pair.backend != DEFAULT_BACKEND or pair.target.server is not None:
        raise click.UsageError(f'--activations is of specchat\'s own decoder, which does not run pair "{pair.id}".')
    progress = ProgressLine()
    progress.show("starting ...")
    from specchat.engine.check_activations import run
    from specchat.models.measured import MeasuredRounding, keep

    found = run(pair, [prompt.messages for prompt in spread(prompts, len(prompts))], progress.loading)
    progress.clear()
    today = date.today().isoformat()
    figures_of = {form: MeasuredRounding(one.mean, one.alike, one.tokens, today) for form, one in found.items()}
    keep(file, pair.target.label, figures_of)
    for form, one in found.items():
        Output().write(
            f"{pair.target.label}: with {form} rows the next token's distribution has a KL divergence of "
            f"{one.mean:.1e} nats from that with float32 rows, 99 % below {one.most:.1e}, at most {one.largest:.1e}. "
            f"Both have the same likeliest token after {one.alike:.1%} of {one.tokens} tokens.\n"
        )


def _run(
    pair: PairSpec,
    prompts: list[ChatPrompt],
    full: bool,
    out: Output,
    interrupt: Interrupt,
) -> bool:
    """Compare and report; True if nothing differs."""
    progress = ProgressLine()
    progress.show("starting ...")
    from specchat.engine import check_ratio
    from specchat.engine.check import CheckPrompt, run
    from specchat.engine.loading import load

    session = load(pair, progress.loading)
    progress.clear()
    if session.info.notes.warning:
        progress.note(session.info.notes.warning)
    if interrupt.pressed:
        raise click.Abort
    chats = [
        CheckPrompt(p.id, p.messages)
        for p in prompts
        if session.count(Count(0, p.messages)).tokens < session.info.context
    ]
    if not chats:
        raise Problem(
            f"No prompt fits the context of {session.info.context} tokens. Take other prompts.", ExitCode.CONTEXT
        )
    if left_out := len(prompts) - len(chats):
        progress.note(f"{left_out} of {len(prompts)} prompts do not fit the context and are left out.")
    seen: list[CheckResult] = []
    for name, results in groupby(run(session, chats, full), lambda result: result.prompt):
        of_prompt = []
        for result in results:
            of_prompt.append(result)
            progress.show(f"{name}: {len(of_prompt)} replies compared")
            if interrupt.pressed:
                break
        progress.clear()
        seen += of_prompt
        out.write(_line(name, of_prompt))
        if interrupt.pressed:
            break
    same = sum(result.identical for result in seen)
    out.write(f"{same} of {len(seen)} replies are identical to plain decoding's.\n{_scope(seen, session.info)}")
    begun = len({result.prompt for result in seen})
    if interrupt.pressed:
        out.write(f"Interrupted: {begun} of {len(chats)} prompts were begun, and ratio and block were not checked.\n")
        return same == len(seen)

    def goes_on(acceptance: Acceptance, strategy: str, replies: int) -> bool:
        progress.show(f"{acceptance}, {strategy}: {replies} replies drawn")
        return not interrupt.pressed

    matching: list[bool] = []
    for distribution in check_ratio.run(session, goes_on, full):
        progress.clear()
        out.write(_distribution_line(distribution))
        matching.append(distribution.holds)
    progress.clear()
    different = sorted({result.strategy for result in seen if not result.identical})
    out.write(_advice(different, all(matching), full, session.info.notes.exactness) + "\n")
    return not different and all(matching)


def _advice(different: list[str], matching: bool, full: bool, exactness: str) -> str:
    """Advice about the outcome, in a sentence."""
    if "plain" in different:
        return "Plain decoding itself writes otherwise after an earlier turn, so no strategy is at fault: report this."
    from specchat.engine.decoding.row_invariance import CHECKED  # imports torch

    if different and exactness.startswith(CHECKED):
        return (
            f"No strategy is at fault: with this pair rounding depends on how many tokens a pass has ({exactness}). "
            "Where the text must not depend on drafts, use plain."
        )
    if different:
        return f"Do not use {', '.join(different)} with this pair until that is fixed, and report the lines above."
    if not matching:
        return "Leave acceptance at coupled with this pair until that is fixed, and report the lines above."
    more = "" if full else "; specchat check --full compares more, which can take hours"
    return f"There is nothing to do: drafting does not change the text here{more}."


def _distribution_line(result: "RatioResult") -> str:
    why = "" if result.holds else f", chi-square {result.chi_square:.1f} where chance gives at most {result.bound:.1f}"
    matches = f"matches the model's own distribution: {'yes' if result.holds else 'no'}"
    return f"{result.acceptance}, {result.strategy}  {matches}  ({result.replies} replies{why})\n"


def _line(name: str, results: "list[CheckResult]") -> str:
    different = [result for result in results if not result.identical]
    lines = [f"{name}  identical: {'no' if different else 'yes'}  ({len(results)} replies)"]
    lines += [
        f"  {_how(result)}: first difference at token {result.position}, margin {result.margin:.3g}"
        for result in different
    ]
    return "\n".join(lines) + "\n"


def _scope(results: "list[CheckResult]", info: PairInfo) -> str:
    """Three sentences: the strategies, samplings, lengths and ends that were compared, what was not, and by what."""
    if not results:
        return ""
    drafted = [result for result in results if result.draft_length]
    strategies = ", ".join({result.strategy: None for result in drafted}) or "plain"
    lengths = ", ".join(map(str, sorted({result.draft_length for result in drafted})))
    tokens = figures.of(max(result.tokens for result in results), "token")
    return (
        f"Compared: {strategies}, drafting {lengths or 0}; {', '.join({result.sampling: None for result in results})}; "
        f"{figures.of(max(result.turn for result in results), 'turn')} of up to {tokens}, which the model or that "
        f"limit ended. Not compared: stop strings and grammars. Exactness: {info.notes.exactness}.\n"
    )


def _how(result: "CheckResult") -> str:
    """`draft x5, greedy, second turn`."""
    length = f" x{result.draft_length}" if result.draft_length else ""
    return f"{result.strategy}{length}, {result.sampling}" + ", second turn" * (result.turn > 1)

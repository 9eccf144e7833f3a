"""`specchat tune`: its commands, each of which makes something that drafts, and registers it if that pays."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from specchat.cli.chat_store import opened_store
from specchat.cli.completion import complete_pairs
from specchat.cli.download import ready
from specchat.cli.json_lines import JsonLines
from specchat.cli.options import PAIR_OPTIONS, WRITABLE, F, Named, Passing, with_options
from specchat.cli.output import Output, ProgressLine, reports_errors
from specchat.cli.tune_list import list_, remove_, use_
from specchat.cli.tune_work import DATA_OPTIONS, DEVICE_OPTION, TuneOptions, begun, ending
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Head
from specchat.tune import TUNED
from specchat.tune.plan import DRAFT_STEPS

HEADS_STEPS, EXIT_STEPS, SETS = 1000, 600, 300
SKIPPING = next(name for name, strategy in STRATEGIES.items() if "skips" in strategy.needs)


@click.group(cls=Passing)
@with_options(PAIR_OPTIONS[:1])
def tune(models: Path | None) -> None:
    """Train or search what drafts for a pair."""
    del models


for command in (list_, use_, remove_):
    tune.add_command(command)


def _steps(default: int) -> Callable[[F], F]:
    return click.option(
        "--steps", type=click.IntRange(1), default=default, show_default=True, help="How long to train."
    )


def _say(lines: Iterable[str]) -> None:
    Output().write("\n".join([*lines, ""]))


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@with_options(DATA_OPTIONS)
@_steps(DRAFT_STEPS)
@with_options([DEVICE_OPTION])
@click.option(
    "--whole/--adapters",
    "whole",
    default=None,
    help="Train all weights, or adapters of rank 16; by default adapters from 150 million weights on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print progress and result as JSON lines.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def draft(steps: int, whole: bool | None, as_json: bool, **given: Any) -> None:
    """Train the draft model of PAIR on its target's replies to prompts like yours.

    Prompts are those of your chats (--chats), of a file, or the ones that come along; an eighth is held out. The text
    stays what the target alone writes. At the end both drafts answer held-out prompts; the trained one is written into
    models.toml if it is faster beyond the interval. ctrl+c stops; the same command goes on from there.
    """
    progress = JsonLines() if as_json else ProgressLine()
    with begun(TuneOptions(**given), "draft", "trained draft", steps, progress) as order:
        from specchat.tune.runs.draft import tuned

        lines = tuned(order, None if whole is None else not whole)
    if not as_json:
        _say(lines)


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@click.option("--family", type=Named(TUNED), required=True, help="What kind of heads.")
@with_options(DATA_OPTIONS)
@_steps(HEADS_STEPS)
@with_options([DEVICE_OPTION])
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def heads(family: Head, steps: int, **given: Any) -> None:
    """Train heads for the target of PAIR, on its own replies to prompts.

    An eighth of the prompts is held out. At the end the heads are measured on these, and written into models.toml if
    the pair is faster with them beyond the interval. ctrl+c stops; the same command goes on from there, also to more
    --steps.
    """
    with begun(TuneOptions(**given), family, "heads", steps) as order:
        from specchat.tune.runs.heads import tuned

        lines = tuned(order, family)
    _say(lines)


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@with_options(DATA_OPTIONS)
@click.option("--sets", type=click.IntRange(1), default=SETS, show_default=True, help="How many choices to try.")
@with_options([DEVICE_OPTION])
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def swift(sets: int, **given: Any) -> None:
    """Search which layers the target of PAIR skips when it drafts for itself, on its replies to prompts.

    An eighth of the prompts is held out. The choice is written into models.toml if drafting with it is faster there,
    beyond the interval, than as the pair is: without a choice it searches from the beginning each time it is loaded.
    ctrl+c stops; the same command goes on from there, also to more --sets.
    """
    with begun(TuneOptions(**given), SKIPPING, "skip set", sets) as order:
        from specchat.tune.runs.swift import tuned

        lines = tuned(order)
    _say(lines)


@tune.command("exit")
@click.argument("pair", shell_complete=complete_pairs)
@with_options(DATA_OPTIONS)
@_steps(EXIT_STEPS)
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def exit_(steps: int, **given: Any) -> None:
    """Train an adapter through which the first layers of the target of PAIR draft, on its replies to prompts.

    The target itself stays as it is, and so does its text. An eighth of the prompts is held out. The adapter is written
    into models.toml if drafting by early exit is faster there beyond the interval. ctrl+c stops; the same command goes
    on from there, also to more --steps.
    """
    with begun(TuneOptions(**given), "exit", "adapter", steps) as order:
        from specchat.tune.runs.exit import tuned

        lines = tuned(order)
    _say(lines)


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@click.option(
    "--size",
    type=click.IntRange(1),
    help="How many tokens.  [default: half of the vocabulary, 32,768 without a draft model]",
)
@click.option(
    "--out", type=WRITABLE, metavar="FILE", help="The file to write.  [default: beside models.toml, named as the pair]"
)
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def vocabulary(pair: str, size: int | None, out: Path | None, models: Path | None) -> None:
    """Count the tokens that the draft model of PAIR, or its target's own layer, may propose: fewer make it faster.

    They are counted in the replies of your saved chats and, where those are few, in replies that the target writes for
    it. Ends of replies, bytes and digits are always among them.
    """
    from specchat.cli.pairs import declared_pair
    from specchat.config.paths import private_folder, user_paths
    from specchat.models.declare import vocabulary_file

    paths = user_paths()
    toml, found = models or paths.models_file, ready(declared_pair(pair, models), models)
    if out is None:
        out = vocabulary_file(toml, found.id)
        if not models:
            private_folder(out.parent)
    progress = ProgressLine()
    with ending(progress) as interrupt:
        progress.show("starting ...")
        from specchat.tune.runs.vocabulary import CHARACTERS, counted

        with opened_store() as store:
            texts = [text for _, of_chat in store.replies(CHARACTERS) for text in of_chat]
        lines = counted(found, size, out, texts, progress, lambda: interrupt.pressed)
    named = out.name if out.absolute().parent == toml.absolute().parent else str(out.absolute())
    _say(
        [
            *lines,
            f'Written to {out}. To use it, give the pair "{found.id}" in {toml} the line below; a shipped pair is '
            "changed by one of the same id there, so copy its table first.",
            "",
            f"draft_vocabulary = {json.dumps(named, ensure_ascii=False)}",
        ]
    )

"""`specchat tune`: its commands, each of which makes something that drafts, and registers it if that pays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.json_lines import JsonLines
from specchat.cli.options import PAIR_OPTIONS, F, Named, Passing, with_options
from specchat.cli.output import Output, ProgressLine, reports_errors
from specchat.cli.tune_draft import DraftOrder, distilled, registered
from specchat.cli.tune_exit import exit_
from specchat.cli.tune_heads import WHAT, HeadsOrder, trained
from specchat.cli.tune_heads import registered as heads_registered
from specchat.cli.tune_list import list_, remove_, use_
from specchat.cli.tune_swift import swift
from specchat.cli.tune_vocabulary import vocabulary
from specchat.cli.tune_work import DATA_OPTIONS, begun
from specchat.engine.strategy import Head
from specchat.tune import TUNED
from specchat.tune.plan import DRAFT_STEPS

STEPS = 1000
STRATEGY = "draft"


@click.group(cls=Passing)
@with_options(PAIR_OPTIONS[:1])
def tune(models: Path | None) -> None:
    """Train or search what drafts for a pair."""
    del models


tune.add_command(list_)
tune.add_command(use_)
tune.add_command(remove_)
tune.add_command(vocabulary)
tune.add_command(swift)
tune.add_command(exit_)


def _steps(default: int) -> Callable[[F], F]:
    return click.option(
        "--steps", type=click.IntRange(1), default=default, show_default=True, help="How long to train."
    )


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@with_options(DATA_OPTIONS)
@_steps(DRAFT_STEPS)
@click.option(
    "--whole/--adapters",
    "whole",
    default=None,
    help="Train all weights, or adapters of rank 16; by default adapters from 150 million weights on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print progress and result as JSON lines.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def draft(pair: str, steps: int, whole: bool | None, as_json: bool, **data: Any) -> None:
    """Train the draft model of PAIR on its target's replies to prompts like yours.

    Prompts are those of your chats (--chats), of a file, or the ones that come along; an eighth is held out. The text
    stays what the target alone writes. At the end both drafts answer held-out prompts; the trained one is written into
    models.toml if it is faster beyond the interval. ctrl+c stops; the same command goes on from there.
    """
    progress = JsonLines() if as_json else ProgressLine()
    with begun(pair, STRATEGY, "trained draft", steps, **data, progress=progress) as work:
        order = DraftOrder(**work.order.common, strategy=STRATEGY, adapted=None if whole is None else not whole)
        lines = registered(order, distilled(order), work.data, work.toml)
    if not as_json:
        Output().write("\n".join([*lines, ""]))


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@click.option("--family", type=Named(TUNED), required=True, help="What kind of heads.")
@with_options(DATA_OPTIONS)
@_steps(STEPS)
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def heads(pair: str, family: Head, steps: int, **data: Any) -> None:
    """Train heads for the target of PAIR, on its own replies to prompts.

    An eighth of the prompts is held out. At the end the heads are measured on these, and written into models.toml if
    the pair is faster with them beyond the interval. ctrl+c stops; the same command goes on from there, also to more
    --steps.
    """
    with begun(pair, family, WHAT, steps, **data) as work:
        order = HeadsOrder(**work.order.common, family=family)
        lines = heads_registered(order, trained(order), work.data, work.toml)
    Output().write("\n".join([*lines, ""]))

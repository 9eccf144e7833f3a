"""`specchat tune`: trains a pair's draft, or heads for its target, and registers what pays."""

from pathlib import Path

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.json_lines import JsonLines
from specchat.cli.options import FOLDER, PAIR_OPTIONS, Named, Passing, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.cli.tune_draft import DraftOrder, distilled, registered
from specchat.cli.tune_heads import NEEDS, HeadsOrder, trained
from specchat.cli.tune_heads import registered as heads_registered
from specchat.cli.tune_list import list_, remove_, use_
from specchat.cli.tune_swift import swift
from specchat.cli.tune_vocabulary import vocabulary
from specchat.cli.tuning import alone, begun_with, data_of, failing, forget_begun
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.strategy import Head
from specchat.tune import TUNED
from specchat.tune.plan import DRAFT_STEPS, REPLIES

STEPS = 1000
STRATEGY = "draft"


@click.group(cls=Passing)
@with_options(PAIR_OPTIONS[:1])
def tune(models: Path | None) -> None:
    """Train what drafts for a pair."""
    del models


tune.add_command(list_)
tune.add_command(use_)
tune.add_command(remove_)
tune.add_command(vocabulary)
tune.add_command(swift)


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@click.option("--chats", "from_chats", is_flag=True, help="Learn from the prompts of your saved chats.")
@click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".')
@click.option(
    "--replies", type=click.IntRange(1), default=REPLIES, show_default=True, help="How many replies to learn from."
)
@click.option("--steps", type=click.IntRange(1), default=DRAFT_STEPS, show_default=True, help="How long to train.")
@click.option(
    "--whole/--adapters",
    "whole",
    default=None,
    help="Train all weights, or adapters of rank 16; by default adapters from 150 million weights on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print progress and result as JSON lines.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def draft(
    pair: str,
    from_chats: bool,
    prompts: Path | None,
    replies: int,
    steps: int,
    whole: bool | None,
    as_json: bool,
    models: Path | None,
) -> None:
    """Train the draft model of PAIR on its target's replies to prompts like yours.

    Prompts are those of your chats (--chats), of a file, or the ones that come along; an eighth is held out. The text
    stays what the target alone writes. At the end both drafts answer held-out prompts; the trained one is written into
    models.toml if it is faster beyond the interval. ctrl+c stops; the same command goes on from there.
    """
    from specchat.cli.prepare import read_catalog
    from specchat.config.paths import private_folder, user_paths

    paths = user_paths()
    found = ready(read_catalog(paths, models).find(pair), models)
    if found.spec.backend != DEFAULT_BACKEND:
        raise Problem(
            f'The draft of pair "{found.id}" cannot be trained: {found.spec.backend} runs it, and training learns from '
            "targets that specchat's own decoder runs on the CPU.",
            ExitCode.UNUSABLE,
        )
    data = data_of(found.id, prompts, from_chats)
    name, toml = f"{found.id}-{STRATEGY}", models or paths.models_file
    progress = JsonLines() if as_json else ProgressLine()
    folder = private_folder(paths.data / "tune" / name)
    with Interrupt() as interrupt, failing(folder, progress), alone(folder):
        data = begun_with(folder, data) if from_chats else data
        order = DraftOrder(
            found,
            data.chats,
            replies,
            steps,
            folder,
            progress,
            interrupt,
            STRATEGY,
            None if whole is None else not whole,
        )
        lines = registered(order, distilled(order), data, toml)
        forget_begun(folder)
    if not as_json:
        Output().write("\n".join([*lines, ""]))


@tune.command()
@click.argument("pair", shell_complete=complete_pairs)
@click.option("--family", type=Named(TUNED), required=True, help="What kind of heads.")
@click.option("--chats", "from_chats", is_flag=True, help="Learn from the prompts of your saved chats.")
@click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".')
@click.option(
    "--replies", type=click.IntRange(1), default=REPLIES, show_default=True, help="How many replies to learn from."
)
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True, help="How long to train.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def heads(
    pair: str, family: Head, from_chats: bool, prompts: Path | None, replies: int, steps: int, models: Path | None
) -> None:
    """Train heads for the target of PAIR, on its own replies to prompts.

    An eighth of the prompts is held out. At the end the heads are measured on these, and written into models.toml if
    the pair is faster with them beyond the interval. ctrl+c stops; the same command goes on from there, also to more
    --steps.
    """
    from specchat.cli.prepare import read_catalog
    from specchat.config.paths import private_folder, user_paths

    paths = user_paths()
    found = ready(read_catalog(paths, models).find(pair), models)
    if found.spec.backend != DEFAULT_BACKEND:
        raise Problem(
            f'No heads for pair "{found.id}": it is run by {found.spec.backend}, and {NEEDS}.', ExitCode.UNUSABLE
        )
    data = data_of(found.id, prompts, from_chats)
    name = f"{found.id}-{family}"
    folder, toml = private_folder(paths.data / "tune" / name), models or paths.models_file
    progress = ProgressLine()
    with Interrupt() as interrupt, failing(folder, progress), alone(folder):
        order = HeadsOrder(found, data.chats, replies, steps, folder, progress, interrupt, family)
        lines = heads_registered(order, trained(order), data, toml)
    Output().write("\n".join([*lines, ""]))

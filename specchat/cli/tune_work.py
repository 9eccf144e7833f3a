"""The beginning of every tune: the pair, the prompts, a folder of its own, and reasons to refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import FOLDER
from specchat.cli.output import Problem, ProgressLine
from specchat.cli.tuning import TrainingData, TrainingOrder, alone, begun_with, data_of, failing, forget_begun
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.errors import ForeignModel
from specchat.tune.plan import REPLIES

if TYPE_CHECKING:
    from specchat.engine.model.checkpoint import Checkpoint
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.engine.session import Session

NEEDS = "specchat's own decoder on the CPU"
DATA_OPTIONS = (
    click.option("--chats", "from_chats", is_flag=True, help="Learn from the prompts of your saved chats."),
    click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".'),
    click.option(
        "--replies", type=click.IntRange(1), default=REPLIES, show_default=True, help="How many replies to learn from."
    ),
)


@dataclass(frozen=True)
class TuneWork:
    """The order of a tune, its prompts in words, and the models.toml that its result is written to."""

    order: TrainingOrder
    data: TrainingData
    toml: Path


@contextmanager
def begun(
    pair: str,
    kind: str,
    what: str,
    steps: int,
    prompts: Path | None,
    from_chats: bool,
    replies: int,
    models: Path | None,
    progress: ProgressLine | None = None,
) -> Iterator[TuneWork]:
    """The work of a tune, alone in a folder named after the pair and its `kind`; failures become sentences.

    `what` is made, in words.

    Raises:
        Problem: another backend runs the pair, or there are too few prompts.
        ConfigError: there is no such pair.
    """
    from specchat.config.catalog import read_catalog
    from specchat.config.paths import private_folder, user_paths

    paths, progress = user_paths(), progress or ProgressLine()
    found = ready(read_catalog(paths, models).find(pair), models)
    if found.spec.backend != DEFAULT_BACKEND:
        raise refused(found.id, what, f"it is run by {found.spec.backend}")
    data = data_of(found.id, prompts, from_chats)
    folder = private_folder(paths.data / "tune" / f"{found.id}-{kind}")
    with Interrupt() as interrupt, failing(folder, progress), alone(folder):
        data = begun_with(folder, data) if from_chats else data
        order = TrainingOrder(found, data.chats, replies, steps, folder, progress, interrupt)
        yield TuneWork(order, data, models or paths.models_file)
        forget_begun(folder)


def refused(pair: str, what: str, reason: str) -> Problem:
    """A refusal to make something for a pair."""
    return Problem(f'No {what} for pair "{pair}": {reason}, and this needs {NEEDS}.', ExitCode.UNUSABLE)


def loaded(order: TrainingOrder, what: str) -> "tuple[Checkpoint, Session, CachedDecoder]":
    """The target's checkpoint, the pair without its heads, and the target as it is loaded.

    Raises:
        Problem: another backend or the GPU runs the target.
        EngineError: it cannot be loaded.
    """
    from dataclasses import replace

    from specchat.engine.hub import locate
    from specchat.engine.loading import load
    from specchat.engine.model.checkpoint import Checkpoint
    from specchat.engine.model.decoder import CachedDecoder

    try:
        checkpoint = Checkpoint.open(locate(order.pair.spec.target, order.show))
    except ForeignModel as error:
        raise refused(order.pair.id, what, error.reason) from None
    session = load(replace(order.pair.spec, heads={}), order.show)
    model = session.target.model
    if not isinstance(model, CachedDecoder):
        raise refused(order.pair.id, what, 'its target runs on the GPU (give it device = "cpu")')
    return checkpoint, session, model

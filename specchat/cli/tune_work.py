"""What all tunes begin with: the pair, the prompts, a folder of their own, and what may stop them."""

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
from specchat.cli.tuning import TrainingData, TrainingOrder, alone, data_of, failing
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.errors import ForeignModel

if TYPE_CHECKING:
    from specchat.engine.model.checkpoint import Checkpoint
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.engine.session import Session

REPLIES = 512
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
    pair: str, kind: str, prompts: Path | None, from_chats: bool, replies: int, steps: int, models: Path | None
) -> Iterator[TuneWork]:
    """The work of a tune, alone in a folder named after the pair and its `kind`; failures become sentences.

    Raises:
        Problem: another backend runs the pair, or there are too few prompts.
        ConfigError: there is no such pair.
    """
    from specchat.cli.prepare import read_catalog
    from specchat.config.paths import private_folder, user_paths

    paths, progress = user_paths(), ProgressLine()
    found = ready(read_catalog(paths, models).find(pair), models)
    if found.spec.backend != DEFAULT_BACKEND:
        raise refused(found.id, kind, f"it is run by {found.spec.backend}")
    data = data_of(found.id, prompts, from_chats)
    folder = private_folder(paths.data / "tune" / f"{found.id}-{kind}")
    with Interrupt() as interrupt, failing(folder, progress), alone(folder):
        order = TrainingOrder(found, data.chats, replies, steps, folder, progress, interrupt)
        yield TuneWork(order, data, models or paths.models_file)


def refused(pair: str, kind: str, reason: str) -> Problem:
    """A refusal to tune a pair for a reason."""
    return Problem(f'No {kind} for pair "{pair}": {reason}, and this needs {NEEDS}.', ExitCode.UNUSABLE)


def loaded(order: TrainingOrder, kind: str) -> "tuple[Checkpoint, Session, CachedDecoder]":
    """The target's checkpoint, and the pair with the target alone.

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
        raise refused(order.pair.id, kind, error.reason) from None
    session = load(replace(order.pair.spec, draft=None, draft_vocabulary=None, heads={}), order.show)
    model = session.target.model
    if not isinstance(model, CachedDecoder):
        raise refused(order.pair.id, kind, 'its target runs on the GPU (give it device = "cpu")')
    return checkpoint, session, model

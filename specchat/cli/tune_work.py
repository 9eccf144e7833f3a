"""Options that all tunes share, and the messages with which they end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.bench.prompts import shipped_prompts
from specchat.cli.chat_store import opened_store
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import FOLDER, Named
from specchat.cli.output import Problem, ProgressLine
from specchat.tune.plan import REPLIES

if TYPE_CHECKING:
    from specchat.engine.protocol.pair import Device
    from specchat.tune.data import TuneData
    from specchat.tune.order import TuneOrder

DATA_OPTIONS = (
    click.option("--chats", "from_chats", is_flag=True, help="Learn from the prompts of your saved chats."),
    click.option("--prompts", type=FOLDER, metavar="FILE", help='Prompts as JSON lines with "messages" or "turns".'),
    click.option(
        "--replies", type=click.IntRange(1), default=REPLIES, show_default=True, help="How many replies to learn from."
    ),
)

DEVICE_OPTION = click.option(
    "--device",
    type=Named(("cpu", "cuda")),
    help="Where to read the target and to train.  [default: where the pair runs]",
)


def data_of(pair: str, prompts: Path | None, from_chats: bool) -> "TuneData":
    """The prompts of a file, of the saved chats, or those that come along for a pair.

    Raises:
        Problem: the chats cannot be read.
        EngineError: the file cannot be read, or there are too few.
    """
    from specchat.tune.data import of_chats, of_file

    if not from_chats:
        return of_file(prompts or shipped_prompts(pair))
    from specchat.chat.asked import asked_prompts

    if prompts is not None:
        raise Problem("--chats and --prompts cannot go together. Leave one out.", ExitCode.USAGE)
    with opened_store() as store:
        return of_chats(list(asked_prompts(store)))


@dataclass(frozen=True)
class TuneOptions:
    """The pair and the options that all tunes share, as given."""

    pair: str
    prompts: Path | None
    from_chats: bool
    replies: int
    models: Path | None
    device: "Device | None" = None


@contextmanager
def begun(
    given: TuneOptions, kind: str, what: str, steps: int, progress: ProgressLine | None = None
) -> "Iterator[TuneOrder]":
    """The order of a tune, of a `kind` that makes `what`; ctrl+c stops it.

    Raises:
        Problem: stopped, or a text that is not plain decoding's.
        ConfigError: there is no such pair.
        EngineError: another backend runs the pair, or there are too few prompts.
    """
    from specchat.cli.pairs import declared_pair
    from specchat.config.paths import user_paths
    from specchat.tune import work
    from specchat.tune.order import TuneOrder

    paths, progress, models = user_paths(), progress or ProgressLine(), given.models
    pair, toml = ready(declared_pair(given.pair, models), models), models or paths.models_file
    data = data_of(pair.id, given.prompts, given.from_chats)
    with ending(progress) as interrupt:
        order = TuneOrder(
            pair, kind, what, data, given.replies, steps, toml, progress, lambda: interrupt.pressed,
            given.device or "auto",
        )  # fmt: skip
        with work.begun(order) as begun_order:
            yield begun_order


@contextmanager
def ending(progress: ProgressLine) -> Iterator[Interrupt]:
    """Notes ctrl+c, tells a stop and a text that differs in a sentence, and ends the line of `progress`."""
    from specchat.bench.contender import Different
    from specchat.tune.order import TuneStopped

    with Interrupt() as interrupt:
        try:
            yield interrupt
        except TuneStopped as stop:
            raise Problem(str(stop), ExitCode.INTERRUPTED) from None
        except Different as error:
            raise Problem(
                f"The text by {error} differs from plain decoding's. Nothing was registered.", ExitCode.DIFFERENT
            ) from None
        finally:
            progress.clear()

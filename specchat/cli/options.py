"""Options that several commands share, and what they ask for."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click
from click.core import ParameterSource

from specchat.cli.completion import complete_chats, complete_pairs
from specchat.config.errors import nearest
from specchat.engine.protocol.options import ACCEPTANCES, CONTEXT_POLICIES
from specchat.engine.protocol.pair import Activations, KvCache
from specchat.engine.protocol.ranges import MAX_SEED, SAMPLING
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH

F = TypeVar("F", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path)


class Named(click.Choice[str]):
    """One of some names; a wrong one is answered with the nearest."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            known = ", ".join(self.choices)
            self.fail(f'"{value}" is not one of {known}.{nearest(str(value), self.choices)}', param, ctx)
        return cast(str, value)


class Number(click.FloatRange):
    """A number in a range; click itself lets nan through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            float(value)
        except ValueError:
            self.fail(f'"{value}" is not a number.', param, ctx)
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class StopString(click.ParamType[str]):
    """A stop string, which cannot be empty."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("a stop string cannot be empty.", param, ctx)
        return str(value)


class Writable(click.ParamType[Path]):
    """A file to write, refused at once where its folder is not there: figures must not be lost at the end."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if os.path.isdir(path):
            self.fail(f"{path} is a folder. Give a file.", param, ctx)
        if not os.path.isdir(path.absolute().parent):
            self.fail(f"{path} cannot be written: there is no folder {path.absolute().parent}.", param, ctx)
        return path


WRITABLE = Writable()
SEED = click.IntRange(0, MAX_SEED)
DRAFT_LENGTH = click.IntRange(1, MAX_DRAFT_LENGTH)
SAMPLING_TYPES: dict[str, click.ParamType[Any]] = {
    option: click.IntRange(span.low, span.high) if span.whole else Number(span.low, span.high, min_open=span.above)
    for option, span in SAMPLING.items()
}
"""The values of sampling options."""


def _option(*names: str, env: bool = False, **settings: Any) -> Callable[[F], F]:
    name = names[0].removeprefix("--").replace("-", "_")
    return click.option(*names, envvar=f"SPECCHAT_{name.upper()}" if env else None, show_envvar=env, **settings)


def _sampling_option(name: str, help: str) -> Callable[[F], F]:
    return _option(name, type=SAMPLING_TYPES[name.removeprefix("--").replace("-", "_")], help=help)


PAIR_OPTIONS = (
    click.option(
        "--models",
        type=FOLDER,
        metavar="FILE",
        envvar="SPECCHAT_MODELS_FILE",
        show_envvar=True,
        help="Use this models.toml instead of the one in the config folder.",
    ),
    _option(
        "--pair",
        env=True,
        metavar="ID",
        shell_complete=complete_pairs,
        help="Which pair to load; specchat models lists them.",
    ),
    _option(
        "--target", type=FOLDER, metavar="PATH|NAME", help="Load this folder or GGUF file; a name is one of --pair."
    ),
    _option("--draft", type=FOLDER, metavar="PATH|NAME", help="With --target: the model that drafts, named likewise."),
    _option("--cache", type=Named(get_args(KvCache)), help="Hold keys and values in 8 bits: half of the memory."),
    _option(
        "--activations",
        type=Named(get_args(Activations)),
        help="Form of the rows that matrices multiply on a CPU.",
    ),
)
SAMPLING_OPTIONS = (
    _option("--seed", env=True, type=SEED, help="Makes a reply repeatable.  [default: drawn]"),
    _sampling_option("--temperature", "0 takes the likeliest token."),
    _sampling_option("--top-k", "Sample from the k likeliest tokens; 0 is off."),
    _sampling_option("--top-p", "Sample from the likeliest tokens of this mass."),
    _sampling_option("--min-p", "Leave out tokens below this share of the likeliest."),
    _sampling_option("--repetition-penalty", "Divides the logits of seen tokens."),
    _sampling_option("--presence-penalty", "Subtracted from the logits of seen tokens."),
    _sampling_option("--frequency-penalty", "The same for each time a token was seen."),
)
DECODING_OPTIONS = (
    _option(
        "--strategy",
        env=True,
        type=Named(list(STRATEGIES)),
        metavar="NAME",
        help="How tokens are drafted: auto, plain or another; specchat models show ID lists those of a pair.",
    ),
    _option("--draft-length", env=True, type=DRAFT_LENGTH, help="Tokens drafted a step."),
    _option("--acceptance", env=True, type=Named(ACCEPTANCES), help="How drafted tokens are judged."),
    *SAMPLING_OPTIONS,
    _option(
        "--max-tokens", env=True, type=click.IntRange(1), help="The longest reply.  [default: as the context holds]"
    ),
    _option("--context", env=True, type=Named(CONTEXT_POLICIES), help="What becomes of a chat that does not fit."),
    _option("--system", env=True, metavar="TEXT", help="The system prompt."),
    _option("--stop", type=StopString(), multiple=True, help="End the reply before this text; may be given again."),
)
CHAT_OPTIONS = (
    click.option("--continue", "continued", is_flag=True, help="Go on with the latest chat."),
    click.option(
        "--chat",
        metavar="CHAT",
        shell_complete=complete_chats,
        help="Go on with this one: its key, its number in specchat chats list, or how its title begins.",
    ),
)


class Passing(click.Group):
    """A group whose options hold for the command after them as well; those given behind the command count more."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises click.UsageError for an option that the command does not have."""
        name, command, rest = super().resolve_command(ctx, args)
        known = {parameter.name for parameter in command.params} if command else set()
        passed: list[str] = []
        for parameter in self.params:
            if parameter.name and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
                option = parameter.opts[0]
                if parameter.name not in known:
                    raise click.UsageError(f"{option} does not go with {name}. Leave one of them out.")
                value = ctx.params[parameter.name]
                values = value if isinstance(value, tuple) else (value,)
                passed += [option] if value is True else [f"{option}={each}" for each in values]
        return name, command, [*passed, *rest]


def with_options(*groups: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Give a command all options of these groups, in this order."""

    def decorate(command: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate

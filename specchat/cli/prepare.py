"""Wishes become a pair and preferences: command line over environment over config.toml over the pair."""

import os
import re
from contextlib import suppress

import click

from specchat.clean import one_line
from specchat.cli.pairs import Configured, LastPairGone
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Pair
from specchat.config.errors import ConfigError
from specchat.config.paths import Paths, private_folder
from specchat.config.settings import UserSettings
from specchat.dataclass import dataclass
from specchat.engine.backends import declared
from specchat.engine.prefixes.bounds import DISK, MEMORY, bytes_in
from specchat.engine.protocol.options import Limits
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.ranges import SAMPLING
from specchat.engine.strategies import STRATEGIES
from specchat.service.settings import Preferences


@dataclass(frozen=True)
class Prepared(Configured):
    """The pair to load, and how to decode. `lost` says why the pair that was chosen last is not the one to load."""

    pair: Pair
    preferences: Preferences
    lost: str = ""

    @property
    def again(self) -> bool:
        """True if the pair is the one that was chosen last, and not the default."""
        return self.pair.id == self.last != self.catalog.default


def prepare(wishes: Wishes, *, otherwise: bool = False) -> Prepared:
    """Read the configuration and apply `wishes`.

    Without a wish it is the pair that was chosen last; where that is gone, an error, or the default if `otherwise`.

    Raises:
        ConfigError: a file is missing or wrong, or there is no such pair.
        click.UsageError: options that contradict each other or the pair.
    """
    known, lost = Configured.read(wishes.models), ""
    settings = known.settings
    try:
        pair = known.wished(wishes)
    except LastPairGone as gone:
        if not otherwise:
            raise
        pair = known.named(known.catalog.default)
        lost = f"{gone.why} It was chosen last; {pair.name} is loaded until you choose another."
    if wishes.strategy and (reason := _unsupported(wishes.strategy, pair)):
        raise click.UsageError(f'--strategy {wishes.strategy} cannot be used with pair "{pair.id}": {reason}.')
    context = wishes.context or settings.context or Limits().context
    sampling = {name: value for name in SAMPLING if (value := getattr(wishes, name)) is not None}
    preferences = Preferences(
        strategy=wishes.strategy or _preferred(settings, pair),
        draft_length=wishes.draft_length or settings.draft_length,
        acceptance=wishes.acceptance or settings.acceptance,
        sampling=pair.sampling.given(**sampling) if sampling else None,
        seed=settings.seed if wishes.seed is None else wishes.seed,
        limits=Limits(wishes.max_tokens or settings.max_tokens, wishes.stop, context),
        system=settings.system or "" if wishes.system is None else wishes.system,
    )
    return Prepared(known.paths, settings, known.catalog, known.used, pair, preferences, lost)


ENGINE_MINUTES = 5
"""How long the engine stays loaded after its last client, unless config.toml or SPECCHAT_ENGINE_MINUTES says it."""
GPU_MINUTES = 15
"""How long a GPU's memory is held without a request, unless config.toml or SPECCHAT_GPU_MINUTES says it."""


def engine_for(prepared: Prepared, client: str) -> EnginePort:
    """The engine for a program called `client`, not yet started: that which this user's programs share, or servers."""
    from specchat.remote.routing import RoutingEngine

    return RoutingEngine(lambda: _shared(prepared, client), _remote, prepared.pair.spec)


def _remote() -> EnginePort:
    from specchat.remote.engine import RemoteEngine

    return RemoteEngine()


def _shared(prepared: Prepared, client: str) -> EnginePort:
    from specchat.resident.shared import open_engine

    settings = prepared.settings
    for variable, size in ((MEMORY, settings.keep_read), (DISK, settings.keep_read_on_disk)):
        _check_size(variable)
        if size is not None:
            os.environ.setdefault(variable, size)
    linger_s = _seconds("SPECCHAT_ENGINE_MINUTES", settings.engine_minutes, ENGINE_MINUTES)
    idle_s = _seconds("SPECCHAT_GPU_MINUTES", settings.gpu_minutes, GPU_MINUTES)
    log = prepared.paths.engine_log if keeps_state(prepared.paths) else None
    with suppress(ConfigError):
        private_folder(prepared.paths.runtime)
    return open_engine(prepared.paths.runtime, log, client, linger_s, idle_s)


def _check_size(variable: str) -> None:
    try:
        bytes_in(os.environ.get(variable) or "0")
    except ValueError as error:
        raise click.UsageError(f"{variable} {error}") from None


def _seconds(variable: str, setting: int | None, default: int) -> float:
    """Seconds of a number of minutes: of a variable of the environment, else of a setting."""
    if minutes := os.environ.get(variable):
        if not re.fullmatch(r"\d{1,4}", minutes):
            raise click.UsageError(f"{variable} is {one_line(minutes, 40)}: it has to be a number of minutes.")
        return 60.0 * int(minutes)
    return 60.0 * (default if setting is None else setting)


def keeps_state(paths: Paths) -> bool:
    """True if there is, or could be made, a folder for the engine's log and the prompt history."""
    try:
        private_folder(paths.state)
    except ConfigError:
        return False
    return True


def _preferred(settings: UserSettings, pair: Pair) -> str | None:
    """The strategy of config.toml where the pair can have it: a preference should not stop a pair from working."""
    return None if settings.strategy is None or _unsupported(settings.strategy, pair) else settings.strategy


def _unsupported(strategy: str, pair: Pair) -> str:
    """The reason why a pair cannot have a strategy as far as its description tells; what runs it is known later."""
    return STRATEGIES[strategy].unsupported(declared(pair.spec.draft is not None, pair.spec.heads, pair.spec.backend))

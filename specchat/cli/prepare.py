"""Wishes become a pair and preferences: command line over environment over config.toml over the pair."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from specchat.clean import one_line
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Catalog, Pair, local_pair, read_catalog
from specchat.config.errors import ConfigError
from specchat.config.paths import Paths, private_folder, user_paths
from specchat.config.settings import UserSettings, load_settings
from specchat.engine.backends import declared
from specchat.engine.options import Limits
from specchat.engine.port import EnginePort
from specchat.engine.ranges import SAMPLING
from specchat.engine.strategies import STRATEGIES
from specchat.service.settings import Preferences


@dataclass(frozen=True)
class Prepared:
    """The pair to load, and how to decode."""

    paths: Paths
    settings: UserSettings
    catalog: Catalog
    pair: Pair
    preferences: Preferences


def prepare(wishes: Wishes) -> Prepared:
    """Read the configuration and apply `wishes`.

    Raises:
        ConfigError: a file is missing or wrong, or there is no such pair.
        click.UsageError: options that contradict each other or the pair.
    """
    paths = user_paths()
    settings = load_settings(paths.settings_file)
    catalog = read_catalog(paths, wishes.models)
    pair = _pair(wishes, settings, catalog, paths.settings_file)
    if wishes.strategy and (reason := _unsupported(wishes.strategy, pair)):
        raise click.UsageError(f'--strategy {wishes.strategy} cannot be used with pair "{pair.id}": {reason}.')
    context = wishes.context or settings.context or Limits().context
    given = {name: value for name in SAMPLING if (value := getattr(wishes, name)) is not None}
    preferences = Preferences(
        strategy=wishes.strategy or _preferred(settings, pair),
        draft_length=wishes.draft_length or settings.draft_length,
        acceptance=wishes.acceptance or settings.acceptance,
        sampling=pair.sampling.given(**given) if given else None,
        seed=settings.seed if wishes.seed is None else wishes.seed,
        limits=Limits(wishes.max_tokens or settings.max_tokens, wishes.stop, context),
        system=settings.system or "" if wishes.system is None else wishes.system,
    )
    return Prepared(paths, settings, catalog, pair, preferences)


def runnable(pair: Pair) -> Pair:
    """`pair`, when this version can run it.

    Raises:
        ConfigError: it cannot, with the reason.
    """
    if pair.unsupported:
        raise ConfigError(f'Pair "{pair.id}" cannot be loaded: {pair.unsupported}. "specchat models" shows which can.')
    return pair


PAIR_VARIABLE = "SPECCHAT_PAIR"
MINUTES_VARIABLE = "SPECCHAT_ENGINE_MINUTES"
ENGINE_MINUTES = 5
"""How long the engine stays loaded after its last client, unless config.toml says it."""


def engine_for(prepared: Prepared, client: str) -> EnginePort:
    """The engine for a program called `client`, not yet started: that which this user's programs share, or servers."""
    from specchat.remote.routing import RoutingEngine

    return RoutingEngine(lambda: _shared(prepared, client), _remote, prepared.pair.spec)


def _remote() -> EnginePort:
    from specchat.remote.engine import RemoteEngine

    return RemoteEngine()


def _shared(prepared: Prepared, client: str) -> EnginePort:
    from specchat.resident.shared import open_engine

    minutes = _engine_minutes(prepared.settings)
    log = prepared.paths.engine_log if keeps_state(prepared.paths) else None
    with suppress(ConfigError):
        private_folder(prepared.paths.runtime)
    return open_engine(prepared.paths.runtime, log, client, 60.0 * minutes)


def _engine_minutes(settings: UserSettings) -> int:
    if minutes := os.environ.get(MINUTES_VARIABLE):
        if not re.fullmatch(r"\d{1,4}", minutes):
            raise click.UsageError(f"{MINUTES_VARIABLE} is {one_line(minutes, 40)}: it has to be a number of minutes.")
        return int(minutes)
    return ENGINE_MINUTES if settings.engine_minutes is None else settings.engine_minutes


def keeps_state(paths: Paths) -> bool:
    """Whether there is, or could be made, a folder for the engine's log and the prompt history."""
    try:
        private_folder(paths.state)
    except ConfigError:
        return False
    return True


def _pair(wishes: Wishes, settings: UserSettings, catalog: Catalog, settings_file: Path) -> Pair:
    if wishes.target is None:
        if wishes.draft is not None:
            raise click.UsageError("--draft goes with --target; a pair names its own draft.")
        try:
            return _named(wishes.pair or settings.pair or catalog.default, settings, catalog)
        except ConfigError as error:
            if place := _where_named(wishes.pair, settings.pair, settings_file):
                raise ConfigError(f"{place}: {error.message}") from None
            raise
    if wishes.pair is not None:
        raise click.UsageError("--target and --pair exclude each other: a pair names its own target.")
    return local_pair(_model(wishes.target), _model(wishes.draft) if wishes.draft else None)


def _where_named(wished: str | None, set_: str | None, settings_file: Path) -> str:
    """The place that a pair's name came from, where it was not the command line."""
    if wished is not None:
        return PAIR_VARIABLE if os.environ.get(PAIR_VARIABLE) == wished else ""
    return f"{settings_file}: pair" if set_ is not None else ""


def _named(name: str, settings: UserSettings, catalog: Catalog) -> Pair:
    """A pair of the catalog, else a model that was found on this machine, as `specchat models list` names both.

    Raises:
        ConfigError: there is neither.
    """
    try:
        return catalog.find(name)
    except ConfigError:
        pair = found_here(name, settings)
        if pair is None:
            raise
        return runnable(pair)


def found_here(name: str, settings: UserSettings) -> Pair | None:
    """The model that was found on this machine under this name or id; None for none. Reads the disk."""
    from specchat.engine.fetch.source import usual_hub
    from specchat.models.library import look, usual_places
    from specchat.models.offers import found_named

    return found_named(name, look(usual_places(usual_hub(), settings.model_folders or ())))


def _model(place: Path) -> Path:
    """`place`, or its only GGUF file, as LM Studio keeps them, where it is a folder of such.

    Raises:
        click.UsageError: it has several.
    """
    folder = place.expanduser()
    if not os.path.isdir(folder) or os.path.exists(folder / "config.json"):
        return place
    from specchat.engine.fetch.listing import first_files

    files = first_files(sorted(os.listdir(folder)))
    if len(files) > 1:
        some = ", ".join([*files[:4], *["..."] * (len(files) > 4)])
        raise click.UsageError(f"{place} has {len(files)} GGUF files: {one_line(some, 200)}. Give the path of one.")
    return folder / files[0] if files else place


def _preferred(settings: UserSettings, pair: Pair) -> str | None:
    """The strategy of config.toml where the pair can have it: a preference should not stop a pair from working."""
    return None if settings.strategy is None or _unsupported(settings.strategy, pair) else settings.strategy


def _unsupported(strategy: str, pair: Pair) -> str:
    """The reason why a pair cannot have a strategy as far as its description tells; what runs it is known later."""
    return STRATEGIES[strategy].unsupported(declared(pair.spec.draft is not None, pair.spec.heads, pair.spec.backend))

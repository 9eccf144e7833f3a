"""Wishes become a pair and preferences: command line over environment over config.toml over the pair."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.clean import one_line
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Catalog, Pair, folder_source, local_pair, read_catalog
from specchat.config.errors import ConfigError
from specchat.config.paths import Paths, private_folder, user_paths
from specchat.config.settings import UserSettings, load_settings
from specchat.config.used_pairs import UsedPairs, gone
from specchat.engine.backends import declared
from specchat.engine.options import Limits
from specchat.engine.pair import ModelSource
from specchat.engine.port import EnginePort
from specchat.engine.ranges import SAMPLING
from specchat.engine.strategies import STRATEGIES
from specchat.service.settings import Preferences

if TYPE_CHECKING:
    from specchat.models.library import ModelPlaces


@dataclass(frozen=True)
class Prepared:
    """The pair to load, and how to decode. `lost` says why the pair that was chosen last is not the one to load."""

    paths: Paths
    settings: UserSettings
    catalog: Catalog
    pair: Pair
    preferences: Preferences
    used: UsedPairs
    lost: str = ""

    @property
    def places(self) -> "ModelPlaces":
        """Where this user's models are."""
        return places(self.settings)

    @property
    def again(self) -> bool:
        """True if the pair is the one that was chosen last, where nothing else names one."""
        return self.pair.id == self.used.last != self.catalog.default


def prepare(wishes: Wishes, *, otherwise: bool = False) -> Prepared:
    """Read the configuration and apply `wishes`.

    Without a wish it is the pair that was chosen last; where that is gone, an error, or the default if `otherwise`.

    Raises:
        ConfigError: a file is missing or wrong, or there is no such pair.
        click.UsageError: options that contradict each other or the pair.
    """
    paths = user_paths()
    settings = load_settings(paths.settings_file)
    catalog = read_catalog(paths, wishes.models)
    used, lost = UsedPairs(paths.used_pairs), ""
    try:
        pair = _pair(wishes, settings, catalog, paths.settings_file, used)
    except LastPairGone as gone:
        if not otherwise:
            raise
        pair, lost = catalog.find(catalog.default), gone.message
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
    return Prepared(paths, settings, catalog, pair, preferences, used, lost)


class LastPairGone(ConfigError):
    """The pair that was chosen last cannot be found any more."""


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


def _pair(wishes: Wishes, settings: UserSettings, catalog: Catalog, settings_file: Path, used: UsedPairs) -> Pair:
    if wishes.target is not None:
        if wishes.pair is not None:
            raise click.UsageError("--target and --pair exclude each other: a pair names its own target.")
        return _local(wishes.target, wishes.draft, settings)
    if wishes.draft is not None:
        raise click.UsageError("--draft goes with --target; a pair names its own draft.")
    name = _name(wishes.pair, settings, catalog, used)
    try:
        return runnable(_named(name, settings, catalog, used))
    except ConfigError as error:
        if place := _where_named(wishes.pair, settings.pair, settings_file):
            raise ConfigError(f"{place}: {error.message}") from None
        if wishes.pair is None and name == used.last:
            words = f"{error.message} It was chosen last; --pair names another one for the next start too."
            raise LastPairGone(words) from None
        raise


def _local(target: Path, draft: Path | None, settings: UserSettings) -> Pair:
    """The pair that `--target` and `--draft` name: by folders, GGUF files, or names of models on this machine."""
    from specchat.models.sampling import with_published_sampling

    found = places(settings)
    sources = [_source("--target", target, found), *([_source("--draft", draft, found)] if draft else [])]
    made = local_pair(sources[0], sources[1] if draft else None)
    return with_published_sampling(made, found.hub)


def _source(option: str, place: Path, where: "ModelPlaces") -> ModelSource:
    """The model that an option names.

    Raises:
        click.UsageError: there is none, or a folder holds several.
    """
    path = place.expanduser()
    if os.path.lexists(path):
        return folder_source(_model(place))
    from specchat.config.errors import nearest
    from specchat.models.library import look
    from specchat.models.names import found_model

    library = look(where)
    if (found := found_model(str(place), library)) is not None:
        return found[1].spec.target
    near = nearest(str(place), [model.about.name for model in library.models])
    raise click.UsageError(
        f"{option}: there is no folder or file {place}, and no model of that name on this machine.{near} "
        '"specchat models" lists them.'
    )


def _where_named(wished: str | None, set_: str | None, settings_file: Path) -> str:
    """The place that a pair's name came from, where it was not the command line."""
    if wished is not None:
        return PAIR_VARIABLE if os.environ.get(PAIR_VARIABLE) == wished else ""
    return f"{settings_file}: pair" if set_ is not None else ""


def _named(name: str, settings: UserSettings, catalog: Catalog, used: UsedPairs) -> Pair:
    """The pair of this name. Those that are known wholly are found without importing what reads models."""
    pair = catalog.declared(name) or used.find(name)
    if pair is not None and (pair.sampling_from or pair.spec.target.server or pair.sampling_file) and not gone(pair):
        return pair
    from specchat.models.names import pair_named

    return pair_named(name, catalog, used, places(settings))


def default_pair(models: Path | None) -> str:
    """The id of the pair that is loaded where nothing names one."""
    paths = user_paths()
    settings, catalog = load_settings(paths.settings_file), read_catalog(paths, models)
    return _name(None, settings, catalog, UsedPairs(paths.used_pairs))


def _name(wished: str | None, settings: UserSettings, catalog: Catalog, used: UsedPairs) -> str:
    """The id or name that counts: the wish, else config.toml's, a default that is stated, or the last choice."""
    return wished or settings.pair or (catalog.default if catalog.stated else used.last) or catalog.default


def named(name: str, prepared: Prepared) -> Pair:
    """The pair of this name.

    Raises:
        ConfigError: there is none, or this version cannot run it.
    """
    return runnable(_named(name, prepared.settings, prepared.catalog, prepared.used))


def named_pair(name: str, models: Path | None) -> Pair:
    """The pair that an argument names; `models` is the file named on the command line.

    Raises:
        ConfigError: there is none, or this version cannot run it.
    """
    paths = user_paths()
    settings = load_settings(paths.settings_file)
    return runnable(_named(name, settings, read_catalog(paths, models), UsedPairs(paths.used_pairs)))


def declared_pair(name: str, models: Path | None) -> Pair:
    """The pair of a models.toml that an argument names, as what is measured or tuned is written there.

    Raises:
        ConfigError: there is none, or it was only found on this machine.
    """
    pair = named_pair(name, models)
    if not pair.declared:
        raise ConfigError(
            f'"{name}" is in no models.toml, which keeps the results. specchat models add {name} adds it.'
        )
    return pair


def places(settings: UserSettings) -> "ModelPlaces":
    """Where this user's models are."""
    from specchat.engine.fetch.source import usual_hub
    from specchat.models.library import usual_places

    return usual_places(usual_hub(), settings.model_folders or ())


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

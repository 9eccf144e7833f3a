"""The pair that a command line, a file or a chat names."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.clean import one_line
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Catalog, Pair, folder_source, local_pair, read_catalog
from specchat.config.errors import ConfigError, UnknownPair, nearest
from specchat.config.paths import Paths, user_paths
from specchat.config.settings import UserSettings, load_settings
from specchat.config.used_pairs import UsedPairs, gone
from specchat.dataclass import dataclass
from specchat.engine.backends import DEFAULT_BACKEND

if TYPE_CHECKING:
    from specchat.models.library import ModelPlaces

PAIR_VARIABLE = "SPECCHAT_PAIR"


class LastPairGone(ConfigError):
    """The pair that was chosen last cannot be found any more; `why` is a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why} It was chosen last. --pair or --target names another.")
        self.why = why


@dataclass(frozen=True)
class Configured:
    """The user's configuration, and the pairs that it and earlier choices name."""

    paths: Paths
    settings: UserSettings
    catalog: Catalog
    used: UsedPairs

    @classmethod
    def read(cls, models: Path | None) -> "Configured":
        """Read the files; `models` is the one named on the command line.

        Raises:
            ConfigError: a file is missing or wrong.
        """
        paths = user_paths()
        settings = load_settings(paths.settings_file)
        return cls(paths, settings, read_catalog(paths, models), UsedPairs(paths.used_pairs))

    @property
    def places(self) -> "ModelPlaces":
        """The folders of this user's models."""
        from specchat.engine.fetch.source import usual_hub
        from specchat.models.library import usual_places

        return usual_places(usual_hub(), self.settings.model_folders or ())

    @property
    def usual(self) -> str:
        """The name of the pair that is loaded where none is wished: as files state it, else the last choice."""
        stated = self.settings.pair or (self.catalog.default if self.catalog.stated else "")
        return stated or self.last or self.catalog.default

    @property
    def last(self) -> str:
        """The id of the pair that was chosen last, as it is declared by now; empty before the first choice."""
        last = self.used.last
        declared = self._declared(last)
        return last if declared is None else declared.id

    def _declared(self, name: str) -> Pair | None:
        """The declared pair of that name, or with the models of the used one; None for none."""
        if (declared := self.catalog.declared(name)) is not None:
            return declared
        used = self.used.find(name)
        return None if used is None else self.catalog.with_models_of(used)

    def named(self, name: str) -> Pair:
        """The pair of this name. Those that are known wholly are found without importing what reads models.

        Raises:
            ConfigError: there is none, its files are gone, or this version cannot run it.
        """
        pair = self._declared(name) or self.used.find(name)
        known = pair is not None and bool(
            pair.sampling_source.name or pair.sampling_source.file or pair.spec.target.server
        )
        if pair is None or not known or gone(pair):
            from specchat.models.names import pair_named

            pair = pair_named(name, self.catalog, self.used, self.places)
        return runnable(pair)

    def wished(self, wishes: Wishes) -> Pair:
        """The pair of a command line.

        Raises:
            ConfigError: there is none, or this version cannot run it; `LastPairGone` where that was the last choice.
            click.UsageError: options that contradict each other or the pair, or name no model.
        """
        pair = self._pair_of(wishes)
        elsewhere = pair.spec.backend != DEFAULT_BACKEND or pair.spec.target.server is not None
        for name in ("cache", "activations"):
            if getattr(wishes, name) is not None and elsewhere:
                raise click.UsageError(f'--{name} is of specchat\'s own decoder, which does not run pair "{pair.id}".')
        spec = replace(pair.spec, cache=wishes.cache or pair.spec.cache)
        if wishes.activations is not None:
            target, draft = replace(spec.target, activations=None), spec.draft and replace(spec.draft, activations=None)
            spec = replace(spec, target=target, draft=draft, activations=wishes.activations)
        return replace(pair, spec=spec)

    def _pair_of(self, wishes: Wishes) -> Pair:
        if wishes.target is not None:
            if wishes.pair is not None:
                raise click.UsageError("--target and --pair exclude each other: a pair names its own target.")
            return self._local(wishes.target, wishes.draft)
        if wishes.draft is not None:
            raise click.UsageError("--draft goes with --target; a pair names its own draft.")
        try:
            return self.named(self.usual if wishes.pair is None else wishes.pair)
        except ConfigError as error:
            if place := self._where_named(wishes.pair):
                raise ConfigError(f"{place}: {error.message}") from None
            if wishes.pair is None and self.usual == self.last:
                raise LastPairGone(error.message) from None
            raise

    def _where_named(self, wished: str | None) -> str:
        """The place that a pair's name came from, where it was not the command line."""
        if wished is not None:
            return PAIR_VARIABLE if os.environ.get(PAIR_VARIABLE) == wished else ""
        return f"{self.paths.settings_file}: pair" if self.settings.pair is not None else ""

    def _local(self, target: Path, draft: Path | None) -> Pair:
        """The pair of `--target` and `--draft`: folders, GGUF files, or names, of which one alone means its pair."""
        from specchat.models.sampling import with_published_sampling

        pair = self._at("--target", target)
        if draft is not None:
            models = pair, self._at("--draft", draft)
            pair = local_pair(*(one.spec.target for one in models))
            pair = replace(pair, spec=replace(pair.spec, name=" + ".join(map(_title, models))))
        return with_published_sampling(pair, self.places.hub)

    def _at(self, option: str, path: Path) -> Pair:
        """The model that an option names, as a pair."""
        if os.path.lexists(path.expanduser()):
            return local_pair(folder_source(_model(path)), None)
        try:
            pair = self.named(str(path))
        except UnknownPair as error:
            raise click.UsageError(
                f"{option}: there is no folder or file {path}, and no model of that name on this machine."
                f'{nearest(str(path), error.known)} "specchat models" lists them.'
            ) from None
        if pair.spec.target.server is not None:
            raise click.UsageError(f"{option}: {pair.id} runs on a server. --pair names it.")
        return pair


def _title(pair: Pair) -> str:
    """The name of a pair's target."""
    return pair.name if pair.spec.draft is None else local_pair(pair.spec.target, None).name


def runnable(pair: Pair) -> Pair:
    """`pair`, when this version can run it.

    Raises:
        ConfigError: it cannot, with the reason.
    """
    if pair.unsupported:
        raise ConfigError(f'Pair "{pair.id}" cannot be loaded: {pair.unsupported}. "specchat models" shows which can.')
    return pair


def named_pair(name: str, models: Path | None) -> Pair:
    """The pair that an argument names; `models` is the file named on the command line.

    Raises:
        ConfigError: as `Configured.named`.
    """
    return Configured.read(models).named(name)


def declared_pair(name: str, models: Path | None) -> Pair:
    """The pair of a models.toml that an argument names, as what is measured or tuned is written there.

    Raises:
        ConfigError: there is none, or it was only found on this machine.
    """
    pair = named_pair(name, models)
    if not pair.declared:
        raise ConfigError(
            f'"{name}" is in no models.toml, which keeps the results. Add it: specchat models add {name}.'
        )
    return pair


def _model(path: Path) -> Path:
    """`path`, or its only GGUF file, as LM Studio keeps them, where it is a folder of such.

    Raises:
        click.UsageError: it has several.
    """
    folder = path.expanduser()
    if not os.path.isdir(folder) or os.path.exists(folder / "config.json"):
        return path
    from specchat.engine.fetch.listing import first_files

    files = first_files(sorted(os.listdir(folder)))
    if len(files) > 1:
        some = ", ".join([*files[:4], *["..."] * (len(files) > 4)])
        raise click.UsageError(f"{path} has {len(files)} GGUF files: {one_line(some, 200)}. Give the path of one.")
    return folder / files[0] if files else path

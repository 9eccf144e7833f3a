"""models.toml: pairs of a target and its draft, as docs/models-toml.md describes them."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from specchat.config.errors import ConfigError, UnknownPair, nearest
from specchat.config.files import read_tables
from specchat.config.model_tables import model_source, placed, server_of
from specchat.config.paths import Paths, shipped
from specchat.dataclass import dataclass
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.ranges import SAMPLING
from specchat.engine.strategies import in_group
from specchat.engine.strategy import SkippedLayers

LOCAL = "local"
"""The beginning of the ids of what `--target` names."""
PROGRAM_GIB = 0.8
"""The part of `Requires.ram_gib` that Python, torch and the buffers of a step take."""


@dataclass(frozen=True)
class Requires:
    """The needs of a pair in GiB: GPU memory at its quantisation, main memory on the CPU, room on the disk.

    `experts_gib` are the part of the GPU memory that may lie in main memory, `step_gib` the weights that a step of one
    token reads.
    """

    vram_gib: float | None = None
    experts_gib: float | None = None
    ram_gib: float | None = None
    disk_gib: float | None = None
    step_gib: float | None = None


@dataclass(frozen=True)
class SamplingSource:
    """The source of a pair's sampling.

    Attributes:
        name: in words; empty where nothing states the sampling.
        file: path of the file in which the makers' sampling was looked for.
    """

    name: str = ""
    file: str = ""


@dataclass(frozen=True)
class Pair:
    """A pair to choose, with its defaults. `unsupported` says why this version cannot run it; empty when it can."""

    spec: PairSpec
    aliases: tuple[str, ...] = ()
    strategy: str = "auto"
    lengths: Mapping[str, int] = field(default_factory=dict)
    """Draft lengths by strategy, where they differ from the strategy's own."""
    acceptance: Acceptance = "coupled"
    sampling: Sampling = field(default_factory=Sampling)
    sampling_source: SamplingSource = SamplingSource()
    requires: Requires = Requires()
    plain: str = ""
    """Id of the pair that serves the same model without drafting, for one on a server."""
    variant_of: str = ""
    """Id or alias of the pair with the same models in the format that others are variants of; empty for none."""
    licence: str = ""
    """Licence of the target, as its card names it; empty where it is unknown."""
    unsupported: str = ""
    declared: bool = False
    """True for a pair of a models.toml."""

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def draft_length(self) -> int | None:
        """The draft length of the pair's own strategy; None means the strategy's default."""
        return self.lengths.get(self.strategy)


@dataclass(frozen=True)
class Catalog:
    """All declared pairs; `default` is the id of one, which the user's file may state."""

    pairs: tuple[Pair, ...]
    default: str
    stated: bool = False
    """True if the user's file states the default."""

    def declared(self, name: str) -> Pair | None:
        """The pair with this id or alias; None for none."""
        return next((pair for pair in self.pairs if name in (pair.id, *pair.aliases)), None)

    def with_models_of(self, pair: Pair) -> Pair | None:
        """The declared pair with the same models as `pair`; None for none."""
        return next((one for one in self.pairs if one.spec.sources == pair.spec.sources), None)

    def find(self, name: str) -> Pair:
        """The pair with this id or alias.

        Raises:
            ConfigError: there is none; offers the nearest.
        """
        if (pair := self.declared(name)) is not None:
            return pair
        known = [word for pair in self.pairs for word in (pair.id, *pair.aliases)]
        raise UnknownPair(name, known)


def load_catalog(own: Path | None) -> Catalog:
    """The shipped pairs with those of the user's file `own` added; a pair of the same id replaces the shipped one.

    Raises:
        ConfigError: a file is missing or wrong.
    """
    catalog = _read(shipped("models.toml"), None)
    return catalog if own is None else _read(own, catalog)


def read_catalog(paths: Paths, models: Path | None) -> Catalog:
    """The shipped pairs with those of `models`, or else of the user's models.toml if there is one.

    Raises:
        ConfigError: a file is missing or wrong.
    """
    return load_catalog(models or (paths.models_file if os.path.lexists(paths.models_file) else None))


def local_pair(target: ModelSource, draft: ModelSource | None) -> Pair:
    """A pair made of two models, for `--target` and `--draft`.

    Its id stands for these two, so that chats and tuned drafts of other ones are not taken for its own.
    """
    spec = PairSpec(
        id=_local_id(target, draft),
        name=_title(target) + (f" + {_title(draft)}" if draft else ""),
        target=target,
        draft=draft,
    )
    return Pair(spec)


def folder_source(folder: Path) -> ModelSource:
    """The model in a folder or GGUF file."""
    return ModelSource(path=str(Path(os.path.expanduser(folder)).absolute()))


def _local_id(target: ModelSource, draft: ModelSource | None) -> str:
    places = [
        os.path.realpath(source.path) if source.path else source.label for source in filter(None, (target, draft))
    ]
    digest = sha256("\0".join((*places, *[""] * (draft is None))).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    stem = re.sub(r"[^a-z0-9._]+", "-", _title(target).lower()).strip(".-_")[:40]
    return "-".join(filter(None, (LOCAL, stem, digest)))


def _title(source: ModelSource) -> str:
    return Path(source.path).name or source.path if source.path else source.label


def _read(path: Path, base: Catalog | None) -> Catalog:
    file = read_tables(path, "models")
    pairs = [pair_of(table, path.parent) for table in file.get("pair", ())]
    _refuse_duplicates(pairs, path)
    if base is not None:
        pairs = _merged(base.pairs, pairs)
        _refuse_duplicates(pairs, path)
    catalog = Catalog(tuple(_related(pair, pairs, path) for pair in pairs), "")
    default = file.get("default") or (base.default if base else None)
    if default is None:
        raise ConfigError(f"{path}: default is missing. Set it to the id of a pair.")
    try:
        return Catalog(catalog.pairs, catalog.find(default).id, stated=base is not None and "default" in file)
    except UnknownPair as error:
        near = nearest(default, error.known) or " A model that was found is named by pair in config.toml."
        raise ConfigError(f'{path}: default: there is no [[pair]] "{default}".{near}') from None


def _merged(base: Sequence[Pair], own: Sequence[Pair]) -> list[Pair]:
    """Shipped pairs in their order, replaced where the user has the same id, then the user's others.

    An alias that the user gives to a pair is taken from the shipped pair that had it.
    """
    left = {pair.id: pair for pair in own}
    taken = {name for pair in own for name in (pair.id, *pair.aliases)}
    merged = [left.pop(pair.id) if pair.id in left else _without(pair, taken) for pair in base]
    return merged + list(left.values())


def _without(pair: Pair, names: set[str]) -> Pair:
    return replace(pair, aliases=tuple(alias for alias in pair.aliases if alias not in names))


def _related(pair: Pair, pairs: Sequence[Pair], path: Path) -> Pair:
    """The pair with the server that it names as `plain`, and with the id of the pair that it is a variant of.

    Raises:
        ConfigError: there is no such pair.
    """
    others = {name: one for one in pairs for name in (one.id, *one.aliases) if one.id != pair.id}
    if pair.variant_of:
        if pair.variant_of not in others:
            near = nearest(pair.variant_of, others)
            raise ConfigError(f'{path}: pair "{pair.id}": variant_of = "{pair.variant_of}" is no other pair.{near}')
        pair = replace(pair, variant_of=others[pair.variant_of].id)
    if not pair.plain:
        return pair
    server = others[pair.plain].spec.target.server if pair.plain in others else None
    if server is None:
        names = [one.id for one in others.values() if one.spec.target.server is not None]
        raise ConfigError(
            f'{path}: pair "{pair.id}": plain = "{pair.plain}" is no other pair on a server.'
            f"{nearest(pair.plain, names)} It names the same model without drafting."
        )
    assert pair.spec.target.server is not None
    target = replace(pair.spec.target, server=replace(pair.spec.target.server, undrafted=server))
    return replace(pair, spec=replace(pair.spec, target=target))


def _refuse_duplicates(pairs: Sequence[Pair], path: Path) -> None:
    owners: dict[str, str] = {}
    for pair in pairs:
        for name in (pair.id, *pair.aliases):
            if name in owners:
                raise ConfigError(
                    f'{path}: the name "{name}" is used twice, by pair "{owners[name]}" and pair "{pair.id}". '
                    "Rename one of them."
                )
            owners[name] = pair.id


def pair_of(table: Mapping[str, Any], folder: Path) -> Pair:
    """The pair of a `[[pair]]` in a file of `folder`."""
    here, long = "target" in table, table.get("context") == "auto"
    spec = PairSpec(
        id=table["id"],
        name=table.get("name") or table["id"],
        target=model_source(table["target"], folder) if here else ModelSource(server=server_of(table, folder)),
        draft=model_source(table["draft"], folder) if "draft" in table else None,
        draft_vocabulary=placed(table["draft_vocabulary"], folder) if "draft_vocabulary" in table else None,
        exit=placed(table["exit"]["path"], folder) if "exit" in table else None,
        skip=SkippedLayers(**{key: tuple(of) for key, of in table["skip"].items()}) if "skip" in table else None,
        heads={head: model_source(source, folder) for head, source in table.get("heads", {}).items()},
        context=None if long else table.get("context"),
        long_context=long,
        **{
            key: table[key]
            for key in ("backend", "cache", "activations", "head", "trust_remote_code", "exit_layer", "template")
            if key in table
        },
    )
    return Pair(
        spec=spec,
        aliases=tuple(table.get("aliases", ())),
        strategy=table.get("strategy", next(in_group("plain")) if spec.target.server else Pair.strategy),
        acceptance=table.get("acceptance", Pair.acceptance),
        lengths={name: options["length"] for name, options in table.get("strategies", {}).items()},
        sampling=_sampling(table.get("sampling", {}), remote=spec.target.server is not None),
        sampling_source=SamplingSource("models.toml" if "sampling" in table else ""),
        requires=Requires(**table.get("requires", {})),
        plain=table.get("plain", ""),
        variant_of=table.get("variant_of", ""),
        licence=table.get("licence", ""),
        declared=True,
    )


def table_of(pair: Pair, id_: str) -> dict[str, object]:
    """A pair as the keys of its `[[pair]]`, without those that say what goes without saying."""
    spec = pair.spec
    table: dict[str, object] = {"id": id_, "name": spec.name}
    if pair.licence:
        table["licence"] = pair.licence
    if spec.backend != DEFAULT_BACKEND:
        table["backend"] = spec.backend
    for key, source in (("target", spec.target), ("draft", spec.draft)):
        if source is not None:
            said = {name: getattr(source, name) for name in ("repo", "file", "path", "revision", "quant")}
            table[key] = {name: value for name, value in said.items() if value is not None}
    return table


def _sampling(table: Mapping[str, Any], remote: bool) -> Sampling:
    """The pair's sampling; a server elsewhere has its own for what the table leaves open."""
    return Sampling(**table, unset=tuple(name for name in SAMPLING if name not in table) if remote else ())

"""Pairs in the user's models.toml, written and taken out again; comments and all else in it stay as they are."""

import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from specchat.config.catalog import Catalog, load_catalog
from specchat.config.errors import ConfigError
from specchat.config.files import read_toml
from specchat.config.paths import made_folder, shipped
from specchat.engine.protocol.pair import ModelSource
from specchat.reading import read_text

Table = Mapping[str, Any]
Named = tuple[ModelSource, str]
"""A model, and what the user or the list of models calls it."""


@dataclass(frozen=True)
class DeclaredPair:
    """The `[[pair]]` that was written to `file`, all pairs there are then, and what its draft is worse at."""

    table: Table
    file: Path
    catalog: Catalog
    cost: str = ""


def add_pair(path: Path, table: Table) -> Catalog:
    """Write `table`, a `[[pair]]`, to the end of the models.toml at `path`; gives all pairs there are then.

    Raises:
        ConfigError: the file is wrong or cannot be written, the pair is wrong, or one of its names is in the file.
    """
    document = _read(path)
    _append(path, document, table)
    return _write(path, document)


def _append(path: Path, document: tomlkit.TOMLDocument, table: Table) -> None:
    pairs = document.setdefault("pair", tomlkit.aot())
    if not isinstance(pairs, AoT):
        raise ConfigError(f"{path}: pair is written on one line. Write it as [[pair]] first.")
    pairs.append(_table(table))


def remove_pair(path: Path, id_: str) -> Catalog:
    """Take the pair called `id_` out of the models.toml at `path`.

    Raises:
        ConfigError: it is not there, or the file is wrong or cannot be written.
    """
    document = _read(path)
    pairs = document.get("pair")
    index = next((n for n, pair in enumerate(pairs or ()) if pair.get("id") == id_), None)
    if index is None or not isinstance(pairs, AoT):
        raise ConfigError(f'{path} has no [[pair]] "{id_}".')
    del pairs[index]
    if document.get("default") == id_:
        del document["default"]
    return _write(path, document)


def setting_of(path: Path, id_: str, key: str) -> Table | None:
    """The table at a `key` of the pair `id_` of the models.toml at `path`, or of the shipped one; None without one.

    `key` is that of a model, "draft", or of heads, "heads.NAME", or of another table.

    Raises:
        ConfigError: there is no such pair, or the file is wrong.
    """
    found: Any = _own(path, id_)[1]
    for name in key.split("."):
        if name not in found:
            return None
        found = found[name]
    table: Table = found.unwrap()
    return table


def set_setting(path: Path, id_: str, key: str, value: Path | Table | str | None) -> Catalog:
    """Set a `key`, as of `setting_of`, in the pair `id_` of the models.toml at `path`.

    A folder takes the place of a model's or head's, whose other keys stay; a table or a text replaces the whole; None
    removes it.
    A shipped pair is copied there first.

    Raises:
        ConfigError: there is no such pair, or the file is wrong or cannot be written.
    """
    document, pair = _own(path, id_)
    outer, _, last = key.rpartition(".")
    if outer and outer not in pair:
        _insert(pair, outer, tomlkit.inline_table())
    owner = pair[outer] if outer else pair
    if value is None:
        owner.pop(last, None)
        if outer and not owner:
            pair.pop(outer)
        return _write(path, document)
    if isinstance(value, str):
        _insert(owner, last, value)
        return _write(path, document)
    if last not in owner and outer:
        owner[last] = tomlkit.inline_table()
    elif last not in owner:
        _insert(owner, last, tomlkit.inline_table())
    table = owner[last]
    if isinstance(value, Path):
        _place(table, value)
    else:
        for name in table.keys() - value.keys():
            table.pop(name)
        table.update(value)
    return _write(path, document)


def vocabulary_file(path: Path, id_: str) -> Path:
    """Usual place of the draft vocabulary of the pair `id_` of the models.toml at `path`."""
    return path.absolute().parent / f"{id_}.vocabulary.json"


def set_strategy(path: Path, id_: str, strategy: str, length: int | None) -> Catalog:
    """Give the pair `id_` of the models.toml at `path` a strategy, with its draft length unless None.

    A shipped pair is copied there first.

    Raises:
        ConfigError: there is no such pair, or the file is wrong or cannot be written.
    """
    document, pair = _own(path, id_)
    _insert(pair, "strategy", strategy)
    if length is not None:
        if "strategies" not in pair:
            _insert(pair, "strategies", tomlkit.inline_table())
        by_strategy = pair["strategies"]
        if strategy not in by_strategy:
            by_strategy[strategy] = tomlkit.inline_table()
        by_strategy[strategy]["length"] = length
    return _write(path, document)


def _insert(pair: Any, key: str, value: Any) -> None:
    """Set a key of a pair; what stands behind the pair's own keys is about the next pair."""
    if key in pair:
        pair[key] = value
        return
    body, behind = pair.value.body, []
    while body and body[-1][0] is None:
        behind.append(body.pop())
    pair[key] = value
    body.extend(reversed(behind))


def _own(path: Path, id_: str) -> tuple[tomlkit.TOMLDocument, Any]:
    """The models.toml at `path` with its pair `id_`, copied from the shipped ones if need be."""
    document = _read(path)
    pairs = document.setdefault("pair", tomlkit.aot())
    pair = next((pair for pair in pairs if pair.get("id") == id_), None)
    if pair is not None:
        return document, pair
    tables = read_toml(shipped("models.toml"))["pair"]
    table = next((table for table in tables if table["id"] == id_), None)
    if table is None:
        raise ConfigError(f'{path} has no [[pair]] "{id_}".')
    _append(path, document, table)
    return document, document["pair"][-1]


def _place(model: Any, folder: Path) -> None:
    """Set the place of a model or head to `folder`; its other keys stay."""
    for key in ("repo", "revision", "builtin"):
        model.pop(key, None)
    model["path"] = str(folder)


def own_ids(path: Path) -> frozenset[str]:
    """The ids of the pairs in the models.toml at `path`; none where there is no such file.

    Raises:
        ConfigError: it is no TOML.
    """
    pairs = read_toml(path, optional=True).get("pair")
    tables = pairs if isinstance(pairs, list) else []
    return frozenset(str(pair["id"]) for pair in tables if isinstance(pair, dict) and "id" in pair)


def free_id(name: str, taken: Catalog) -> str:
    """An id made of `name` that no pair has yet."""
    plain = unicodedata.normalize("NFKD", name.lower()).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^a-z0-9._]+", "-", plain).strip(".-_") or "model"
    used = {word for pair in taken.pairs for word in (pair.id, *pair.aliases)}
    number = 1
    while (id_ := stem if number == 1 else f"{stem}-{number}") in used:
        number += 1
    return id_


def as_toml(table: Table) -> str:
    """A pair as it stands in models.toml."""
    document = tomlkit.document()
    pairs = tomlkit.aot()
    pairs.append(_table(table))
    document.append("pair", pairs)
    return document.as_string()


def _table(table: Table) -> Any:
    """Tables in it on one line each, as they stand in the shipped file."""
    made = tomlkit.table()
    for key, value in table.items():
        if isinstance(value, Mapping):
            inline = tomlkit.inline_table()
            inline.update(value)
            made.append(key, inline)
        else:
            made.append(key, value)
    made.add(tomlkit.nl())
    return made


def _read(path: Path) -> tomlkit.TOMLDocument:
    if not path.exists():
        return tomlkit.parse("schema = 1\n\n")
    load_catalog(path)  # says what is wrong with it
    try:
        return tomlkit.parse(read_text(path))
    except (OSError, UnicodeDecodeError, TOMLKitError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be changed ({error}). Change it by hand.") from None


def _write(path: Path, document: tomlkit.TOMLDocument) -> Catalog:
    """Check the whole in the place where it is to be, since paths in it are relative to that; then put it there."""
    target = path.resolve()
    made_folder(target.parent)
    trial = target.with_name(f".{target.name}.new")
    try:
        trial.write_text(document.as_string(), encoding="utf-8")
        catalog = load_catalog(trial)
        trial.replace(target)
    except ConfigError as error:
        raise ConfigError(error.message.replace(str(trial), str(path))) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from None
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)
    return catalog

"""TOML data checked against a pydantic model, every mistake with file, key and nearest valid key."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from specchat.clean import one_line
from specchat.config.errors import ConfigError, nearest
from specchat.engine.foreign import shown

MOST_TOLD = 10
"""Mistakes of a file that are reported at once."""


class Table(BaseModel):
    """A TOML table that knows all its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class MissingKey(ValueError):
    """A table needs the key that this names, though other tables of its kind do not."""


def matching(pattern: str, words: str) -> AfterValidator:
    """Text must match `pattern` as a whole; `words` say so to people."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"should be {words}, not {text!r}.")
        return text

    return AfterValidator(check)


def checked(model: type[Table], data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """`data`, which came from the file `path`, with whole numbers as floats where the `model` has floats.

    Raises:
        ConfigError: names every unknown key and unusable value.
    """
    try:
        return model.model_validate(data).model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        mistakes = " ".join(_mistake(model, data, dict(one)) for one in error.errors(include_url=False)[:MOST_TOLD])
        raise ConfigError(f"{path}: {mistakes}") from None


def _mistake(model: type[Table], data: Mapping[str, Any], error: dict[str, Any]) -> str:
    location = tuple(part for part in error["loc"] if part != "[key]")
    where = _key(location) + _owner(data, location)
    word, message = shown(error["input"]).strip("'"), error["msg"]
    match error["type"]:
        case "extra_forbidden":
            return f"{where} is not a known key.{nearest(str(location[-1]), _keys(model, location[:-1]))}"
        case "missing":
            first = " Begin the file with the line schema = 1." if location == ("schema",) else ""
            return f"{where} is missing.{first}"
        case "list_type" if isinstance(error["input"], Mapping):
            return f"{where} should be a list of tables: write [[{location[-1]}]], in double brackets."
        case "value_error" if isinstance(missing := error["ctx"]["error"], MissingKey):
            return f"{_key((*location, str(missing)))}{_owner(data, location)} is missing."
        case "value_error":
            text = str(error["ctx"]["error"])
            return f"{where}{' ' if text.startswith('should') else ': '}{text}"
        case "literal_error" if known := re.findall("'([^']*)'", message):
            return f"{where} must be {_either(known)}, not {shown(error['input'])}.{nearest(word, known)}"
        case _:
            expected = message.removeprefix("Input ").removeprefix("String ")
            expected = re.sub("a valid dictionary.*", "a table", expected).replace("a valid list", "a list in [ ]")
            return f"{where} {expected}, not {shown(error['input'])}."


def _key(location: tuple[str | int, ...]) -> str:
    """`("pair", 2, "target")` as `pair[2].target`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return one_line(path, 120)


def _owner(data: Any, location: tuple[str | int, ...]) -> str:
    """The id of the table a key is in, in brackets: `pair[2]` alone is hard to find in a file."""
    owner = ""
    for part in location:
        try:
            data = data[part]
        except (LookupError, TypeError):
            break
        if isinstance(part, int) and isinstance(data, dict) and isinstance(data.get("id"), str):
            owner = f" (pair {one_line(data['id'], 60)})"
    return owner


def _keys(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The keys that are known where `location` leads."""
    for part in location:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # an index, or a key of a mapping: the model below was found with the field before
        inner = next(_models(field.annotation), None)
        if inner is None:
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _either(words: list[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else "".join(quoted)

"""Checks JSON from others against a schema where it is read."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from specchat.clean import one_line
from specchat.engine.errors import ModelError

LARGEST = 1 << 31
"""No count in a checkpoint reaches it."""


class Foreign(BaseModel):
    """A JSON object. Its fields are the keys that are read; a field's description states its expected value."""

    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )


Schema = TypeVar("Schema", bound=Foreign)
POSITIVE = "a positive whole number below 2^31"
A_NUMBER = "a positive number"
_OR_EMPTY = BeforeValidator(lambda value: value or {})
OR_NONE = BeforeValidator(lambda value: value or None)
Count = Annotated[int, Field(gt=0, lt=LARGEST, description=POSITIVE)]
MaybeCount = Annotated[Count | None, OR_NONE, Field(description=POSITIVE)]
"""None if missing, null or 0."""
Number = Annotated[float, Field(gt=0, lt=1e30, description=A_NUMBER)]
Switch = Annotated[bool, BeforeValidator(lambda value: value or False), Field(description="true or false")]
Table = Annotated[dict[str, Any], _OR_EMPTY, Field(default_factory=dict, description="an object")]
"""Empty if missing, null or false."""


def checked(schema: type[Schema], data: object, where: str) -> Schema:
    """Validate `data` by `schema`.

    Raises:
        ModelError: a value is missing or has another type; the message begins with `where`.
    """
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    except RecursionError:
        raise ModelError(f"{where}: it is nested too deeply.") from None
    location = [part for part in first["loc"] if isinstance(part, str)] or [""]
    key, field = location[0], schema.model_fields.get(location[0])
    if first["type"] == "missing" and len(first["loc"]) == 1:
        raise ModelError(f"{where}: key {key!r} is missing.")
    if not key:
        raise ModelError(f"{where} does not hold a JSON object. Download it again.")
    should = (field.description if field is not None else None) or first["msg"].partition("should be ")[2]
    given = data.get(key) if isinstance(data, dict) else None
    raise ModelError(f"{where}: {one_line(key, 60)} is {shown(given)}, not {should}.")


def shown(value: object) -> str:
    """A value for a message, shortened to one line."""
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "too large"
    if isinstance(value, dict | list) and len(value) > 40:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,} values"
    try:
        return one_line(repr(value), 43)
    except (RecursionError, ValueError):  # Python refuses integers of thousands of digits
        return "too large"


def parsed(text: str | bytes, where: str) -> object:
    """Parse a JSON text.

    Raises:
        ModelError: it is no JSON, or beyond Python's limits; the message begins with `where`.
    """
    try:
        return json.loads(text)
    except RecursionError:
        reason = "it is nested too deeply"
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    except ValueError:  # Python refuses integers of thousands of digits
        reason = "it holds a number that is too long"
    raise ModelError(f"{where} cannot be read as JSON ({reason}). Download it again.")

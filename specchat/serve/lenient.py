"""Fields as clients of many kinds send them: unknown ones, nulls, and numbers that stand for none."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class Lenient(BaseModel):
    """A request, or a part of one.

    Fields that no endpoint knows are left out, as other servers do. A field that is null is as if it were missing:
    many clients write all that they know.
    """

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


def _or(value: int | None) -> BeforeValidator:
    """-1 read as `value`."""
    return BeforeValidator(lambda given: value if given == -1 else given)


TokenLimit = Annotated[int | None, Field(ge=1), _or(None)]
"""The longest reply; -1 is no limit, as in llama.cpp and LM Studio."""
TopK = Annotated[int | None, _or(0)]
"""-1 is off, as in vLLM and SGLang."""
ReadLimit = Annotated[int | None, Field(ge=0), _or(None)]
"""The longest reply; with 0 the prompt is read, and nothing is written."""
Tokens = list[Annotated[int, Field(ge=0, lt=2**31)]]
"""A text as token ids."""

"""Refused and failed requests, as HTTP statuses with a sentence."""

import re

from pydantic import ValidationError

from specchat.clean import one_line
from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.events import Failed

STATUS: dict[ErrorKind, int] = {
    "request": 400,
    "context": 400,
    "model": 400,
    "config": 500,
    "memory": 503,
    "download": 503,
    "died": 503,
    "internal": 500,
}
RETRY_S = 1
"""Seconds after which a client may try again, for a server that is busy or loading."""

_TYPE = re.compile(r"\[key\]|str|int|float|bool|(list|dict|function-|constrained-)\W?.*")
"""Names of types, which pydantic adds to the path of a field that may have several."""


_FOLDERS = re.compile(r"(?<![\w:/.])[~/](?:[^\s/:'\"]*/)+")
"""The folders of a path, which are nobody's business but the user's."""
_LONGER = " specchat serve --context-length auto, or a number, makes it hold more where the model can."
_TOO_LONG = re.compile(r"takes (?:at least )?([\d,]+) tokens and .+ holds ([\d,]+)")


def without_folders(words: str) -> str:
    """A sentence, paths in it without their folders."""
    return _FOLDERS.sub("", words)


class ApiError(Exception):
    """A request that gets no reply.

    Attributes:
        status: HTTP status.
        param: the field at fault, or "".
        code: OpenAI's word for the error, where it has one.
    """

    def __init__(self, status: int, message: str, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = one_line(message, 1000)
        self.param = param
        self.code = code

    @classmethod
    def of(cls, failed: Failed) -> "ApiError":
        """A failure of the engine."""
        code, longer = ("context_length_exceeded", _LONGER) if failed.kind == "context" else ("", "")
        return cls(STATUS[failed.kind], without_folders(failed.message) + longer, code=code)

    @classmethod
    def of_fields(cls, error: ValidationError) -> "ApiError":
        """Fields that cannot be used; the message names the first, and the place in it."""
        found = error.errors(include_url=False, include_input=False)
        deepest = max((one for one in found if one["loc"][:1] == found[0]["loc"][:1]), key=lambda one: len(one["loc"]))
        name = ".".join(str(part) for part in deepest["loc"] if not _TYPE.fullmatch(str(part)))
        words = "it has to be given" if deepest["type"] == "missing" else deepest["msg"].removeprefix("Value error, ")
        return cls(400, f"{name or 'the body'}: {words}", name)

    @property
    def kind(self) -> str:
        """The error's type in both APIs."""
        by_status = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
        named = by_status | {413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}
        return named.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(RETRY_S)} if self.status in (429, 503) else {}

    def openai(self) -> dict[str, object]:
        """The body that OpenAI's clients expect."""
        found = {"message": self.message, "type": self.kind, "param": self.param or None, "code": self.code or None}
        return {"error": found}

    def ollama(self) -> dict[str, object]:
        """The body that Ollama's clients expect."""
        return {"error": self.message}

    def anthropic(self) -> dict[str, object]:
        """The body that Anthropic's clients expect; by its words on length they shorten a chat."""
        found: dict[str, object] = {"type": self.kind, "message": self.message}
        if long := _TOO_LONG.search(self.message):
            tokens, context = (number.replace(",", "") for number in long.groups())
            found["message"] = f"prompt is too long: {tokens} tokens > {context} maximum. {self.message}"
        if self.code:
            found["details"] = {"error_code": self.code}
        return {"type": "error", "error": found}

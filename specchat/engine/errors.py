"""Errors that the engine tells its user in a sentence; everything else is a bug."""

from typing import Literal

ErrorKind = Literal["config", "model", "context", "memory", "download", "request", "died", "internal"]


class EngineError(Exception):
    """Something the user can act on: `message` names the file, key or model and what to do.

    `kind` groups errors for exit codes and for the app's choice of what to offer next.
    """

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message


class ModelError(EngineError):
    """A model folder, file or tokenizer that cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__("model", message)


class ContextError(EngineError):
    """A prompt that does not fit the context."""

    def __init__(self, message: str) -> None:
        super().__init__("context", message)

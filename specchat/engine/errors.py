"""Errors with a sentence for the user; everything else is a bug."""

from pathlib import Path
from typing import Literal

ErrorKind = Literal["config", "model", "context", "memory", "download", "request", "server", "died", "internal"]


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


class ForeignModel(ModelError):
    """A sound checkpoint that specchat's own decoder does not run, because of `reason`."""

    def __init__(self, file: Path, reason: str) -> None:
        backend, program = ("hf", "transformers") if file.suffix == ".json" else ("gguf", "llama.cpp")
        super().__init__(
            f'{file}: {reason}. Set backend = "{backend}" for the pair in models.toml: {program} may run it.'
        )
        self.file, self.reason = file, reason


class PageLockRefused(ModelError):
    """Main memory that a GPU was to read in place, which the system does not lock."""

    def __init__(self, size: int, code: int) -> None:
        """`size` in bytes; `code` is CUDA's."""
        self.reason = f"the GPU cannot read {size / 2**30:.1f} GiB of the model in main memory (CUDA error {code})"
        super().__init__(
            f'{self.reason[0].upper()}{self.reason[1:]}: free main memory, or run the model with device = "cpu".'
        )


class ContextError(EngineError):
    """A prompt that does not fit the context."""

    def __init__(self, message: str) -> None:
        super().__init__("context", message)

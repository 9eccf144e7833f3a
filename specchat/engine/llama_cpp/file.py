"""A GGUF file opened by llama.cpp: weights, vocabulary and metadata."""

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError
from specchat.engine.llama_cpp.library import ERRORS, llama
from specchat.engine.weights.config import reach


class GgufFile:
    """An open file; closed when nothing refers to it."""

    def __init__(self, path: Path, gpu_layers: int, progress: Callable[[float], None], repack: bool = True) -> None:
        """Read the weights, and `repack` them for this processor; `progress` receives the share read, 0 to 1.

        Raises:
            ModelError: llama.cpp cannot load it, or its kind is not supported.
        """
        self.path = path
        self.api = api = llama()
        params = api.llama_model_default_params()
        params.n_gpu_layers, params.use_extra_bufts = gpu_layers, repack

        @api.llama_progress_callback  # type: ignore[untyped-decorator]
        def notify(share: float, _: object) -> bool:
            progress(share)
            return True

        params.progress_callback = notify
        ERRORS.clear()
        self.model: int = api.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise ModelError(f"{path} cannot be loaded: {ERRORS.reason() or 'llama.cpp does not say why'}.")
        weakref.finalize(self, api.llama_model_free, self.model)
        if reason := unsupported(api, self.model):
            raise ModelError(f"{path} {reason}, which specchat does not run.")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.size: int = api.llama_vocab_n_tokens(self.vocab)
        self.recurrent = bool(api.llama_model_is_recurrent(self.model) or api.llama_model_is_hybrid(self.model))
        """True if layers keep a recurrent state, which cannot be rolled back."""

    def value(self, key: str) -> str | None:
        """A metadata value as text; None for a missing one and for a list."""
        buffer = ctypes.create_string_buffer(256)
        length = self.api.llama_model_meta_val_str(self.model, key.encode(), buffer, len(buffer))
        return None if length < 0 else buffer.value.decode("utf-8", "replace")

    @property
    def max_context(self) -> int | None:
        """Longest sequence in tokens, rope scaling included; None if the file does not say."""
        trained = int(self.api.llama_model_n_ctx_train(self.model))
        if trained <= 0:
            return None
        scaling = f"{self.value('general.architecture')}.rope.scaling."
        keys = {"factor": "factor", "original_max_position_embeddings": "original_context_length"}
        options = {key: _number(self.value(f"{scaling}{name}")) for key, name in keys.items()}
        return reach(self.value(f"{scaling}type") or "default", options, trained)[1]

    def template(self) -> str | None:
        """The chat template, or None."""
        source = self.api.llama_model_chat_template(self.model, None)
        return None if source is None else source.decode("utf-8", "replace")


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def unsupported(api: Any, model: int) -> str:
    """Reason why a model is not supported, or ""."""
    if api.llama_model_has_encoder(model) or not api.llama_model_has_decoder(model):
        return "has an encoder"
    if api.llama_model_is_diffusion(model):
        return "writes no token after the other"
    return ""

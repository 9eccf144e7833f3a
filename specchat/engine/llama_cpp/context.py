"""A context of llama.cpp: its KV cache of one sequence, the batch of a pass, and the logits that it leaves."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from specchat.engine.cpu.threads.tuning import Threads
from specchat.engine.decoding.row_invariance import BLOCK, MOST_ROWS
from specchat.engine.errors import ModelError
from specchat.engine.llama_cpp.file import GgufFile
from specchat.engine.llama_cpp.library import ERRORS
from specchat.engine.protocol.pair import CacheType

CACHE_TYPES: dict[CacheType, tuple[str, float]] = {
    "f32": ("GGML_TYPE_F32", 4.0),
    "f16": ("GGML_TYPE_F16", 2.0),
    "q8_0": ("GGML_TYPE_Q8_0", 34 / 32),
}
"""llama.cpp's name of each KV cache type, and bytes of a value."""


@dataclass(frozen=True)
class GgufSettings:
    """Settings of a model; `threads` None chooses the fastest of a few numbers."""

    context: int
    threads: int | None
    cache: CacheType
    flash_attention: bool


class LlamaContext:
    """KV cache and passes of a file, which it keeps open."""

    def __init__(self, file: GgufFile, settings: GgufSettings, tokens: int) -> None:
        """Allocate a KV cache for `tokens`, and the rows that a pass may add at its end.

        Raises:
            ModelError: llama.cpp cannot allocate it.
        """
        self._api = api = file.api
        params = api.llama_context_default_params()
        params.n_ctx = tokens + MOST_ROWS
        params.n_batch = params.n_ubatch = BLOCK
        params.n_seq_max = 1
        params.no_perf = True
        params.type_k = params.type_v = getattr(api, CACHE_TYPES[settings.cache][0])
        on = settings.flash_attention
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED if on else api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        ERRORS.clear()
        self._context: int = api.llama_init_from_model(file.model, params)
        if not self._context:
            raise ModelError(
                f"{file.path}: no cache for {tokens} tokens can be made ({ERRORS.reason() or 'no reason'})."
            )
        self._batch = api.llama_batch_init(BLOCK, 0, 1)
        # `file` keeps the weights alive until the context is freed.
        weakref.finalize(self, _close, file, self._context, self._batch)
        self._memory = api.llama_get_memory(self._context)
        self._columns = {
            name: np.ctypeslib.as_array(getattr(self._batch, name), (BLOCK,))
            for name in ("token", "pos", "n_seq_id", "logits")
        }
        self._columns["n_seq_id"][:] = 1
        for row in range(BLOCK):
            self._batch.seq_id[row][0] = 0
        self._held = 0
        """Entries of the cache, of rows added to a pass as well."""
        self._vocab, self._address = file.size, 0
        self._views: dict[int, Tensor] = {}
        """Logits at that address, by number of rows."""
        self.use(settings.threads or 1)
        self.tuner: Threads | None = None
        """Set where the number of threads is chosen while running."""

    def use(self, threads: int) -> None:
        """Run later passes on so many threads."""
        self.threads = threads
        self._api.llama_set_n_threads(self._context, threads, threads)

    def decode(self, tokens: Sequence[int], start: int, logits: bool, rows: int) -> None:
        """Run a pass of `tokens` from position `start` on; `rows` beyond them repeat the last one.

        Raises:
            RuntimeError: llama.cpp fails; the cache is empty then.
        """
        count = len(tokens)
        if self._held > start:
            self._api.llama_memory_seq_rm(self._memory, 0, start, -1)
        columns = self._columns
        columns["token"][:count] = tokens
        columns["token"][count:rows] = columns["token"][count - 1]
        columns["pos"][:rows] = range(start, start + rows)
        columns["logits"][:rows] = logits
        self._batch.n_tokens = rows
        self._held = start + rows
        ERRORS.clear()
        if self.tuner is not None and self.tuner.next != self.threads:
            self.use(self.tuner.next)
        started = perf_counter()
        if failed := self._api.llama_decode(self._context, self._batch):
            self._api.llama_memory_clear(self._memory, True)
            self._held = 0
            raise RuntimeError(
                f"llama.cpp cannot decode {rows} tokens after {start} (code {failed}): {ERRORS.reason()}"
            )
        if self.tuner is not None:
            self.tuner.took(rows, perf_counter() - started)

    def logits(self, rows: int) -> Tensor:
        """A view of the logits of the last pass: float32 [rows, vocab]."""
        pointer = self._api.llama_get_logits(self._context)
        address = ctypes.addressof(pointer.contents)
        if self._address != address:
            self._address, self._views = address, {}
        if rows not in self._views:
            self._views[rows] = torch.from_numpy(np.ctypeslib.as_array(pointer, (rows, self._vocab)))
        return self._views[rows]


def _close(file: GgufFile, context: int, batch: ctypes.Structure) -> None:
    file.api.llama_batch_free(batch)
    file.api.llama_free(context)

"""A model that llama.cpp runs on the CPU or a GPU, with its KV cache."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from specchat.engine.cpu.threads.tuning import Threads
from specchat.engine.decoding.row_invariance import BLOCK, MOST_ROWS, UNEVEN_BLOCK, UNPADDED, ChainOnlyModel, Padding
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
TIMED_ROWS = (2, 8)
"""Passes that are timed to choose the number of threads."""
THREAD_TIMINGS = 5
MAX_TIME_RATIO = 0.85
"""More threads must bring the time down to this share: a thread on a shared core delays all of them."""


@dataclass(frozen=True)
class GgufSettings:
    """Settings of a model; `threads` None chooses the fastest of a few numbers."""

    context: int
    threads: int | None
    cache: CacheType
    flash_attention: bool


class GgufModel(ChainOnlyModel):
    """A model with a KV cache of llama.cpp.

    `padding` gives the rows of a pass by its tokens; added rows are discarded. `proof.py` finds a padding at which rows
    are equal. With `alone` a single row is not padded and so rounded differently: the cache is `rough` from there on
    until `exact` or `write` reads those tokens again.

    Where no padding makes rows equal, the model is `uneven`.

    A recurrent model cannot be rolled back: it rereads everything instead, and supports no drafts.
    """

    program = "llama.cpp"

    def __init__(self, file: GgufFile, settings: GgufSettings) -> None:
        """Allocate the KV cache.

        Raises:
            ModelError: llama.cpp cannot allocate it.
        """
        self.file, self.label = file, str(file.path)
        self.api = api = file.api
        self.vocab = file.size
        self.context = min(settings.context, file.max_context or settings.context)
        self.padding: Padding = UNPADDED
        self.alone = False
        self._bytes = CACHE_TYPES[settings.cache][1]
        params = api.llama_context_default_params()
        # The cache also holds the padding rows at its end.
        params.n_ctx = self.context + MOST_ROWS
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
                f"{file.path}: no cache for {self.context} tokens can be made ({ERRORS.reason() or 'no reason'})."
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
        self._address = 0
        self._views: dict[int, Tensor] = {}
        """Logits at that address, by number of rows."""
        self._tokens: list[int] = []
        self._exact = 0
        """Tokens in the cache before the first lone row."""
        self._flash = settings.flash_attention
        self._use(settings.threads or 1)
        self._threads: Threads | None = None
        """Set where the number is chosen while running."""

    @property
    def block(self) -> int:
        if self.file.recurrent:
            return self.context
        return UNEVEN_BLOCK if self.uneven else BLOCK

    @property
    def rounds(self) -> bool:
        """True if weights are quantised, that is below 16 bits on average."""
        return bool(self.api.llama_model_size(self.file.model) < 2 * self.parameters())

    @property
    def rough(self) -> bool:
        """True if the last logits may carry the rounding error of lone rows."""
        return self._exact < len(self._tokens)

    def run(self, tokens: Sequence[int], start: int) -> Tensor:
        count = len(tokens)
        lone = self.alone and count == 1
        self._truncate(start)
        rows = self._decode(tokens, start, True, 1 if lone else self._padded(count))
        if not lone and self._exact == start:
            self._exact += count
        return self._logits(rows)[:count]

    def exact(self, tokens: Sequence[int], start: int) -> Tensor:
        """`run` without the rounding error of lone rows."""
        self.write([], start)
        alone, self.alone = self.alone, False
        try:
            return self.run(tokens, start)
        finally:
            self.alone = alone

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Write the KV entries of `tokens` from position `start` on, after rereading the rough ones before them."""
        before = self._tokens[:start]
        # A recurrent state is computed from the start, so that a reused prefix gives the same one.
        self._truncate(0 if self.file.recurrent else start)
        pending = [*before[self._exact :], *tokens]
        for at in range(0, len(pending), BLOCK):
            part = pending[at : at + BLOCK]
            self._decode(part, self._exact, False, self._padded(len(part)))
            self._exact += len(part)
        self._wrote(start, len(tokens))

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at position `start`."""
        return self.exact([token], start)[0].clone()

    def parameters(self) -> int:
        return int(self.api.llama_model_n_params(self.file.model))

    def memory(self) -> int:
        """Bytes of the weights and of the KV cache, assuming equal layers."""
        api, model = self.api, self.file.model
        heads = api.llama_model_n_head_kv(model) / max(1, api.llama_model_n_head(model))
        entries = 2 * api.llama_model_n_layer(model) * api.llama_model_n_embd(model) * heads * self.context
        return int(api.llama_model_size(model) + entries * self._bytes)

    def choose_threads(self, numbers: Sequence[int]) -> None:
        """Choose from ascending `numbers` of threads by timing passes of TIMED_ROWS rows.

        If all of them compute the same bits, later passes go on adapting the number, since the best one for an idle
        machine may be bad for a busy one. With flash attention bits may differ in long texts.
        """
        passes = [[0] * min(rows, self.context) for rows in TIMED_ROWS]
        seconds: dict[int, list[float]] = {threads: [] for threads in numbers}
        # In turn, so that other programs slow all of them; the first run of each count starts its threads.
        for turn in range(1 + THREAD_TIMINGS if len(numbers) > 1 else 0):
            for threads, seen in seconds.items():
                self._use(threads)
                started = perf_counter()
                for rows in passes:
                    self.forward(rows, 0)
                if turn:
                    seen.append(perf_counter() - started)
        chosen = numbers[0]
        for threads in numbers[1:]:
            if median(seconds[threads]) < MAX_TIME_RATIO * median(seconds[chosen]):
                chosen = threads
        self._threads = Threads(numbers if not self._flash and self._bit_equal(numbers) else [chosen], chosen)
        self._use(chosen)

    def _bit_equal(self, numbers: Sequence[int]) -> bool:
        """True if passes are bit-equal with each of these numbers of threads."""
        passes = [list(range(min(rows, self.context))) for rows in (1, *TIMED_ROWS)]
        first: list[Tensor] = []
        for threads in numbers:
            self._use(threads)
            made = [self.forward(rows, 0).clone() for rows in passes]
            first = first or made
            if not all(torch.equal(*pair) for pair in zip(made, first, strict=True)):
                return False
        return True

    def _use(self, threads: int) -> None:
        self.threads = threads
        self.api.llama_set_n_threads(self._context, threads, threads)

    def _logits(self, rows: int) -> Tensor:
        """A view of llama.cpp's logits: float32 [rows, vocab]."""
        pointer = self.api.llama_get_logits(self._context)
        address = ctypes.addressof(pointer.contents)
        if self._address != address:
            self._address, self._views = address, {}
        if rows not in self._views:
            self._views[rows] = torch.from_numpy(np.ctypeslib.as_array(pointer, (rows, self.vocab)))
        return self._views[rows]

    def _padded(self, count: int) -> int:
        return self.padding[count] if count < len(self.padding) else count

    def _truncate(self, start: int) -> None:
        """Drop the tokens from position `start` on."""
        if 0 < start < len(self._tokens) and self.file.recurrent:
            self.write([], start)
        del self._tokens[start:]
        self._exact = min(self._exact, start)
        self._cut(start)

    def _decode(self, tokens: Sequence[int], start: int, logits: bool, rows: int) -> int:
        """Run one pass and return its number of rows."""
        count = len(tokens)
        fed = self.fed(tokens, start)
        if self._held > start:
            self.api.llama_memory_seq_rm(self._memory, 0, start, -1)
        columns = self._columns
        columns["token"][:count] = fed
        columns["token"][count:rows] = columns["token"][count - 1]
        columns["pos"][:rows] = range(start, start + rows)
        columns["logits"][:rows] = logits
        self._batch.n_tokens = rows
        self._held = start + rows
        self._tokens[start:] = tokens
        ERRORS.clear()
        if self._threads is not None and self._threads.next != self.threads:
            self._use(self._threads.next)
        started = perf_counter()
        if failed := self.api.llama_decode(self._context, self._batch):
            self.api.llama_memory_clear(self._memory, True)
            self._held = self._exact = self._whole = 0
            self._tokens = []
            raise RuntimeError(
                f"llama.cpp cannot decode {rows} tokens after {start} (code {failed}): {ERRORS.reason()}"
            )
        if self._threads is not None:
            self._threads.took(rows, perf_counter() - started)
        return rows


def _close(file: GgufFile, context: int, batch: ctypes.Structure) -> None:
    file.api.llama_batch_free(batch)
    file.api.llama_free(context)

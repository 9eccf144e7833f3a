"""A model that llama.cpp runs, on the CPU or a GPU, with its cache."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from specchat.engine.cpu.threads import Threads
from specchat.engine.decoding.passes import BLOCK, MOST_ROWS
from specchat.engine.errors import ModelError
from specchat.engine.gguf.file import GgufFile
from specchat.engine.gguf.library import TOLD
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.runs import Runs
from specchat.engine.pair import CacheType

CACHE_TYPES: dict[CacheType, tuple[str, float]] = {
    "f32": ("GGML_TYPE_F32", 4.0),
    "f16": ("GGML_TYPE_F16", 2.0),
    "q8_0": ("GGML_TYPE_Q8_0", 34 / 32),
}
"""llama.cpp's names of what an entry of the cache is kept as, and the bytes of one."""
TRIED_ROWS = (2, 8)
"""Rows of the passes that numbers of threads are compared by."""
TRIALS = 5
GAIN = 0.85
"""What more threads must take at most of the time of fewer: each that shares its core holds up all of them."""


@dataclass(frozen=True)
class GgufSettings:
    """How a model is run; `threads` None takes the fastest of a few numbers."""

    context: int
    threads: int | None
    cache: CacheType
    flash_attention: bool


Padding = tuple[int, ...]
"""Entry r is how many rows go through a pass in place of r; the last entry is for the most rows there may be."""


class GgufModel:
    """One sequence at a time, as `decoding.host.HostModel` asks for. Not thread-safe.

    `padding` says how many rows a pass of so many has: others are added whose outcome is dropped. It is set by whoever
    found out at which counts rows come out alike (`proof.py`). Where one row goes `alone` it is not padded, and rounded
    otherwise: it and what is read after it is `rough`, until `exact` or `write` read it again.

    A model with a running state goes on, and goes back by reading from the beginning: nothing may be drafted.
    """

    def __init__(self, file: GgufFile, settings: GgufSettings) -> None:
        """Make the cache.

        Raises:
            ModelError: llama.cpp makes none, as where memory ran out.
        """
        self.file = file
        self.api = api = file.api
        self.vocab = file.size
        self.context = min(settings.context, file.longest or settings.context)
        self.padding: Padding = tuple(range(MOST_ROWS + 1))
        self.alone = False
        self._bytes = CACHE_TYPES[settings.cache][1]
        params = api.llama_context_default_params()
        # The cache also has room for the rows that are added at its end.
        params.n_ctx = self.context + MOST_ROWS
        params.n_batch = params.n_ubatch = BLOCK
        params.n_seq_max = 1
        params.no_perf = True
        params.type_k = params.type_v = getattr(api, CACHE_TYPES[settings.cache][0])
        on = settings.flash_attention
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED if on else api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        TOLD.forget()
        self._context: int = api.llama_init_from_model(file.model, params)
        if not self._context:
            raise ModelError(
                f"{file.path}: no cache for {self.context} tokens can be made ({TOLD.reason() or 'no reason'})."
            )
        self._batch = api.llama_batch_init(BLOCK, 0, 1)
        # The context goes before the weights, which `file` holds until then.
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
        self._made: dict[int, Tensor] = {}
        """Logits at that address, by their rows."""
        self._text: list[int] = []
        self._exact = 0
        """How many tokens of the text held no lone row read, nor anything after one."""
        self._flash = settings.flash_attention
        self._use(settings.threads or 1)
        self._threads: Threads | None = None
        """Where the number is learnt."""

    @property
    def block(self) -> int:
        return self.context if self.file.running else BLOCK

    @property
    def rounds(self) -> bool:
        """Whether weights are quantised: they have less than 16 bits on average."""
        return bool(self.api.llama_model_size(self.file.model) < 2 * self.parameters())

    @property
    def rough(self) -> bool:
        """Whether the logits made last may be off by what one row alone is rounded otherwise."""
        return self._exact < len(self._text)

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Runs | None = None) -> Tensor:
        """Put the entries of `tokens` into the cache from slot `start` on.

        Returns:
            logits float32 [len(tokens), vocab], which the next pass overwrites.
        """
        if runs is not None or skip != NOTHING:
            raise ValueError("llama.cpp is asked for chains, through all layers")
        count = len(tokens)
        lone = self.alone and count == 1
        self._back(start)
        rows = self._decode(tokens, start, True, 1 if lone else self._padded(count))
        if not lone and self._exact == start:
            self._exact += count
        return self._logits(rows)[:count]

    def logits(self, hidden: Tensor) -> Tensor:
        """What `forward` returned."""
        return hidden

    def keep(self, rows: Sequence[int], start: int) -> None:
        raise ValueError("llama.cpp is asked for chains")

    def exact(self, tokens: Sequence[int], start: int) -> Tensor:
        """As `forward`, with nothing rough before or in them."""
        self.write([], start)
        alone, self.alone = self.alone, False
        try:
            return self.forward(tokens, start)
        finally:
            self.alone = alone

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put the entries of `tokens` into the cache from slot `start` on, after those that are rough."""
        before = self._text[:start]
        # A running state is made from the beginning, so that it is the same with a reused prefix.
        self._back(0 if self.file.running else start)
        again = [*before[self._exact :], *tokens]
        for at in range(0, len(again), BLOCK):
            part = again[at : at + BLOCK]
            self._decode(part, self._exact, False, self._padded(len(part)))
            self._exact += len(part)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at slot `start`."""
        return self.exact([token], start)[0].clone()

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        raise ValueError("llama.cpp leaves out no layers")

    def parameters(self) -> int:
        """Number of weights."""
        return int(self.api.llama_model_n_params(self.file.model))

    def memory(self) -> int:
        """Bytes of the weights, and of a cache whose layers are all as the first one."""
        api, model = self.api, self.file.model
        heads = api.llama_model_n_head_kv(model) / max(1, api.llama_model_n_head(model))
        entries = 2 * api.llama_model_n_layer(model) * api.llama_model_n_embd(model) * heads * self.context
        return int(api.llama_model_size(model) + entries * self._bytes)

    def choose_threads(self, numbers: Sequence[int]) -> None:
        """Take the number of threads, of ascending `numbers`, that passes of TRIED_ROWS rows are fastest with.

        Where all of them make the same bits the number is learnt from passes from then on: one that was good while the
        machine was idle may be very bad when it is busy. With flash attention they may differ in long texts.
        """
        passes = [[0] * min(rows, self.context) for rows in TRIED_ROWS]
        seconds: dict[int, list[float]] = {threads: [] for threads in numbers}
        # In turn, so that whatever else runs meets all of them; the first of each count starts its threads.
        for turn in range(1 + TRIALS if len(numbers) > 1 else 0):
            for threads, seen in seconds.items():
                self._use(threads)
                started = perf_counter()
                for rows in passes:
                    self.forward(rows, 0)
                if turn:
                    seen.append(perf_counter() - started)
        chosen = numbers[0]
        for threads in numbers[1:]:
            if median(seconds[threads]) < GAIN * median(seconds[chosen]):
                chosen = threads
        self._threads = Threads(numbers if not self._flash and self._alike(numbers) else [chosen], chosen)
        self._use(chosen)

    def _alike(self, numbers: Sequence[int]) -> bool:
        """Whether passes come out the same bit for bit with each of these numbers of threads."""
        passes = [list(range(min(rows, self.context))) for rows in (1, *TRIED_ROWS)]
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
        """Logits float32 [rows, vocab] where llama.cpp puts them."""
        pointer = self.api.llama_get_logits(self._context)
        address = ctypes.addressof(pointer.contents)
        if self._address != address:
            self._address, self._made = address, {}
        if rows not in self._made:
            self._made[rows] = torch.from_numpy(np.ctypeslib.as_array(pointer, (rows, self.vocab)))
        return self._made[rows]

    def _padded(self, count: int) -> int:
        return self.padding[count] if count < len(self.padding) else count

    def _back(self, start: int) -> None:
        """Forget what was read from slot `start` on."""
        if 0 < start < len(self._text) and self.file.running:
            self.write([], start)
        del self._text[start:]
        self._exact = min(self._exact, start)

    def _decode(self, tokens: Sequence[int], start: int, logits: bool, rows: int) -> int:
        """One pass; returns how many rows it had."""
        count = len(tokens)
        if start + count > self.context:
            raise ValueError(f"{count} tokens do not fit after {start} of {self.context}")
        if self._held > start:
            self.api.llama_memory_seq_rm(self._memory, 0, start, -1)
        columns = self._columns
        # A target may choose a padding token that a draft has no row for.
        columns["token"][:count] = [min(token, self.vocab - 1) for token in tokens]
        columns["token"][count:rows] = columns["token"][count - 1]
        columns["pos"][:rows] = range(start, start + rows)
        columns["logits"][:rows] = logits
        self._batch.n_tokens = rows
        self._held = start + rows
        self._text[start:] = tokens
        TOLD.forget()
        if self._threads is not None and self._threads.next != self.threads:
            self._use(self._threads.next)
        started = perf_counter()
        if failed := self.api.llama_decode(self._context, self._batch):
            self.api.llama_memory_clear(self._memory, True)
            self._held = self._exact = 0
            self._text = []
            raise RuntimeError(f"llama.cpp cannot decode {rows} tokens after {start} (code {failed}): {TOLD.reason()}")
        if self._threads is not None:
            self._threads.took(rows, perf_counter() - started)
        return rows


def _close(file: GgufFile, context: int, batch: ctypes.Structure) -> None:
    file.api.llama_batch_free(batch)
    file.api.llama_free(context)

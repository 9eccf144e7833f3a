"""A model that llama.cpp runs on the CPU or a GPU, with its KV cache."""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from specchat.engine.cpu.threads.tuning import Threads
from specchat.engine.decoding.row_invariance import BLOCK, UNEVEN_BLOCK, UNPADDED, ChainOnlyModel, Padding
from specchat.engine.llama_cpp.context import CACHE_TYPES, GgufSettings, LlamaContext
from specchat.engine.llama_cpp.file import GgufFile

TIMED_ROWS = (2, 8)
"""Passes that are timed to choose the number of threads."""
THREAD_TIMINGS = 5
MAX_TIME_RATIO = 0.85
"""More threads must bring the time down to this share: a thread on a shared core delays all of them."""


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
        self.vocab = file.size
        self.context = min(settings.context, file.max_context or settings.context)
        self.padding: Padding = UNPADDED
        self.alone = False
        self._cache = LlamaContext(file, settings, self.context)
        self._settings = settings
        self._tokens: list[int] = []
        self._exact = 0
        """Tokens in the cache before the first lone row."""

    @property
    def threads(self) -> int:
        """Threads of the last pass."""
        return self._cache.threads

    @property
    def block(self) -> int:
        if self.file.recurrent:
            return self.context
        return UNEVEN_BLOCK if self.uneven else BLOCK

    @property
    def rounds(self) -> bool:
        """True if weights are quantised, that is below 16 bits on average."""
        return bool(self.file.api.llama_model_size(self.file.model) < 2 * self.parameters())

    @property
    def rough(self) -> bool:
        """True if the last logits may carry the rounding error of lone rows."""
        return self._exact < len(self._tokens)

    def run(self, tokens: Sequence[int], start: int) -> Tensor:
        count = len(tokens)
        lone = self.alone and count == 1
        self._truncate(start)
        rows = 1 if lone else self._padded(count)
        self._decode(tokens, start, True, rows)
        if not lone and self._exact == start:
            self._exact += count
        return self._cache.logits(rows)[:count]

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
        return int(self.file.api.llama_model_n_params(self.file.model))

    def memory(self) -> int:
        """Bytes of the weights and of the KV cache, assuming equal layers."""
        api, model = self.file.api, self.file.model
        heads = api.llama_model_n_head_kv(model) / max(1, api.llama_model_n_head(model))
        entries = 2 * api.llama_model_n_layer(model) * api.llama_model_n_embd(model) * heads * self.context
        return int(api.llama_model_size(model) + entries * CACHE_TYPES[self._settings.cache][1])

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
                self._cache.use(threads)
                started = perf_counter()
                for rows in passes:
                    self.forward(rows, 0)
                if turn:
                    seen.append(perf_counter() - started)
        chosen = numbers[0]
        for threads in numbers[1:]:
            if median(seconds[threads]) < MAX_TIME_RATIO * median(seconds[chosen]):
                chosen = threads
        adapts = not self._settings.flash_attention and self._bit_equal(numbers)
        self._cache.tuner = Threads(numbers if adapts else [chosen], chosen)
        self._cache.use(chosen)

    def _bit_equal(self, numbers: Sequence[int]) -> bool:
        """True if passes are bit-equal with each of these numbers of threads."""
        passes = [list(range(min(rows, self.context))) for rows in (1, *TIMED_ROWS)]
        first: list[Tensor] = []
        for threads in numbers:
            self._cache.use(threads)
            made = [self.forward(rows, 0).clone() for rows in passes]
            first = first or made
            if not all(torch.equal(*pair) for pair in zip(made, first, strict=True)):
                return False
        return True

    def _padded(self, count: int) -> int:
        return self.padding[count] if count < len(self.padding) else count

    def _truncate(self, start: int) -> None:
        """Drop the tokens from position `start` on."""
        if 0 < start < len(self._tokens) and self.file.recurrent:
            self.write([], start)
        del self._tokens[start:]
        self._exact = min(self._exact, start)
        self._cut(start)

    def _decode(self, tokens: Sequence[int], start: int, logits: bool, rows: int) -> None:
        """Run one pass of `rows` rows."""
        fed = self.fed(tokens, start)
        self._tokens[start:] = tokens
        try:
            self._cache.decode(fed, start, logits, rows)
        except RuntimeError:
            self._exact = self._whole = 0
            self._tokens = []
            raise

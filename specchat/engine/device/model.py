"""Decoder on a device as a model with a cache: captured prefill, skip sets, hidden states for heads."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specchat.engine.device.decoder import DeviceDecoder, RowOptions
from specchat.engine.device.graphs import Graphs, current
from specchat.engine.device.inputs import PassInputs
from specchat.engine.device.prompts import PromptPasses
from specchat.engine.device.recurrent import Recurrent, reachable
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.text_memory import TextMemory
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.model.copies import CacheEntries, CopiedCache, Tail
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.pictures.rows import PictureRows

Done = Callable[[], bool]
PADDED_ROWS = (1, 2, 4, 8, VERIFY_ROWS, PASS_ROWS)
"""Rows of passes, each captured and compiled for itself; rows after the tokens count for nothing."""


class DeviceModel(CopiedCache):
    """Host side of a `DeviceDecoder`: tokens and positions go in through static buffers."""

    compiled = False
    embedding_product = None

    def __init__(self, decoder: DeviceDecoder, name: str, vocab: int, graphs: Graphs, device: torch.device) -> None:
        """Initialise; `name` keys its graphs, and predictions are tokens below `vocab`."""
        self.decoder = decoder
        self._name = name
        self.config, self.device = decoder.config, device
        self._vocab = min(vocab, decoder.config.vocab)
        self._recipe = recipe = decoder.config.recipe
        self._norm = RMSNorm.of(recipe.norm, decoder.weights.norms[recipe.norm])
        self._graphs = graphs
        self._flags = SkipFlags(recipe, device)
        self._inputs = PassInputs(decoder)
        self._prompts = PromptPasses(decoder, self._inputs, name, graphs)
        self.block = decoder.width
        self._began = 0
        """Where the last `write` began."""
        self._furthest = 0
        """Tokens that the cache has held at once since it was begun anew."""
        self._guessed = torch.zeros(PASS_ROWS, device=device, dtype=torch.int64)
        self._read: Tensor | None = None
        """Pinned main memory for logits, once any are read."""
        self.pictures: PictureRows | None = None
        """See `CachedDecoder`; the rows are in main memory."""

    @property
    def context(self) -> int:
        return self.decoder.context

    @property
    def vocab(self) -> int:
        """Columns of the logits of `project`."""
        return self.config.vocab

    def record_states(self, layers: Sequence[int]) -> None:
        """Record hidden states, as `DeviceDecoder.record_states`; passes that were captured are captured anew."""
        recorded = () if self.decoder.states is None else self.decoder.states.layers
        if not set(layers) <= set(recorded):
            self.decoder.record_states(layers)
            self._graphs.forget()

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """Hidden states, as `States.at`."""
        assert self.decoder.states is not None
        return self.decoder.states.at(layer, first, last)

    def states_at(self, layer: int, positions: Tensor) -> Tensor:
        """Hidden states, as `States.picked`."""
        assert self.decoder.states is not None
        return self.decoder.states.picked(layer, positions)

    def embed(self, tokens: Sequence[int] | Tensor, normed: bool = True) -> Tensor:
        """Input of the first layer: float32 [len(tokens), hidden]; without `normed` before any norm of embeddings.

        The rows of pictures are zeros.
        """
        rows = torch.as_tensor(tokens, device=self.device).int()
        found = torch.empty(len(rows), self.config.hidden, device=self.device)
        of, eps = self._recipe, self._recipe.embed_eps if normed else None
        with current(self.device):
            embed(rows, self.decoder.weights.embed, found, len(rows), of.embed_scale, eps, self.decoder.dtype)
        return found

    def kv_entries(self, layer: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer at positions first, ..., last - 1: float32 [kv_heads, last - first, head_dim]."""
        held = self.decoder.caches.entries[layer][0].shape[1]
        keys, values = self.decoder.caches.read(layer, torch.arange(first, last, device=self.device) % held)
        return keys.float(), values.float()

    def whole_entries(self, layer: int) -> tuple[Tensor, Tensor]:
        """All that a layer's cache holds of keys and values, text or not: compute dtype [kv_heads, held, head_dim]."""
        keys, values = (part.to(self.decoder.dtype) for part in self.decoder.caches.read(layer))
        return keys, values

    def final_norm(self, hidden: Tensor) -> Tensor:
        """Apply the final norm: float32 [rows, hidden]."""
        return self._norm(hidden)

    def project(self, hidden: Tensor) -> Tensor:
        """Apply the head: float32 [rows, hidden] -> float32 [rows, vocab], at most VERIFY_ROWS, overwritten later."""
        rows = len(hidden)
        scale = self._recipe.logit_scale
        self.decoder.buffers.x[:rows].copy_(hidden if scale == 1 else hidden * scale)
        with current(self.device):
            return self.decoder.logits(0, rows)[:rows]

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Write the KV entries of up to `block` tokens, or of a picture, from position `start` on."""
        self._began = start
        self._prompts.write(tokens, start, self.pictures)

    def turn(self, first: int, places: Tensor) -> None:
        """Let entries turn by other positions, as `CachedDecoder.turn`."""
        self.decoder.caches.turn(first, places, self.decoder.context)

    def prepare(self) -> None:
        """Launch the passes of prompts once, where they are captured."""
        self._prompts.prepare()

    @property
    def recurrent(self) -> bool:
        """True where a text that is rolled back far needs a checkpoint."""
        return bool(self._states)

    @property
    def _states(self) -> list[Recurrent]:
        """Recurrent states, of each half of its layers. They are of the same texts, so each has the same positions."""
        return [half.recurrent for half in self.decoder.halves if half.recurrent is not None]

    @property
    def _texts(self) -> list[TextMemory]:
        """The memory of its text, in a part for each half of its layers."""
        return [half.text for half in self.decoder.halves]

    def reusable(self, length: int, held: int) -> int:
        """Return the most tokens, up to `length`, after which a text may go on, and set recurrent states back there.

        The cache had `held` tokens last. Passes have written up to two passes after the text, where a step was begun
        ahead. Captured passes read how long the text is on the device, and cannot ask for states that are gone.
        """
        self._furthest = max(self._furthest, held)
        found = self._unslid(length, self._furthest)
        for states in self._states:
            found = states.set_back(found)
        self._furthest = self._furthest if found else 0
        return found

    def _unslid(self, length: int, furthest: int) -> int:
        return min(half.caches.reusable(length, furthest + 2 * PASS_ROWS) for half in self.decoder.halves)

    def entries(self) -> CacheEntries:
        return CacheEntries([part for text in self._texts for part in text.entries.tensors])

    def tail(self, held: int) -> Tail | None:
        tails = [tail for text in self._texts if (tail := text.tail(max(self._furthest, held))) is not None]
        if not tails:
            return None
        numbers = max((tail.numbers for tail in tails), key=len)
        return Tail([part for tail in tails for part in tail.tensors], numbers)

    def reach(self, length: int, held: int, tail: Tail | None) -> int:
        if tail is None:
            marks = [mark for one in self._states[:1] for mark in (one.base, *one.checkpoints)]
            furthest = max(self._furthest, held)
        else:
            furthest, *marks = tail.numbers
        found = self._unslid(length, furthest)
        return reachable(found, marks[0], marks[1:]) if marks else found

    def resume(self, token_ids: Sequence[int], held: int, tail: Tail | None) -> None:
        if tail is not None:
            self._furthest = tail.numbers[0]
            for text in self._texts:
                tail = text.resume(tail)

    def checkpoint(self) -> None:
        """Let texts go on from where the last `write` began, even if they are rolled back there much later."""
        for half in self.decoder.halves:
            if half.recurrent is not None:
                with current(half.device):
                    half.recurrent.checkpoint(self._began)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Return logits float32 [vocab], on the host, after `token` at position `start`."""
        return self.logits_after([token], start, NOTHING, 1)[0, : self._vocab].clone()

    def logits_after(
        self, tokens: Sequence[int], start: int, skip: Skip, last: int, meanwhile: Callable[[Done], None] | None = None
    ) -> Tensor:
        """Return logits float32 [last, >= vocab], on the host, after the `last` ones of up to PASS_ROWS tokens.

        `last` is VERIFY_ROWS at most. The next pass overwrites them. `meanwhile` is called while the pass runs, with
        what tells whether it is done.
        """
        self.logits_there(tokens, start, skip, last)
        return self._on_host(last, meanwhile)

    def logits_there(self, tokens: Sequence[int], start: int, skip: Skip, last: int) -> Tensor:
        """Return the logits of `logits_after` on the device, where they are computed later."""
        inputs = self._inputs
        inputs.put(tokens, start)
        flags = None if skip == NOTHING else self._flags
        if flags is not None:
            flags.set(skip)
        rows, first = next(size for size in PADDED_ROWS if size >= len(tokens)), len(tokens) - last

        def body() -> None:
            self.decoder.forward(inputs.tokens, inputs.start, rows, flags, options=RowOptions(inputs.last))
            self.decoder.logits(first, min(rows, VERIFY_ROWS))

        if first:
            self._graphs.eagerly(body)
        else:
            self._graphs.run_where_room(("logits", self._name, rows, flags is None), body)
        return self.decoder.last_logits[:last]

    def _on_host(self, last: int, meanwhile: Callable[[Done], None] | None) -> Tensor:
        logits = self.decoder.last_logits
        if self.device.type == "cpu":
            if meanwhile is not None:
                meanwhile(lambda: False)
            return logits[:last]
        if self._read is None:
            self._read = torch.empty(logits.shape, pin_memory=True)
        with current(self.device):
            done = torch.cuda.Event(blocking=True)
            self._read[:last].copy_(logits[:last], non_blocking=True)
            done.record()
        if meanwhile is not None:
            meanwhile(done.query)
        done.synchronize()
        return self._read[:last]

    def likeliest(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """Return the likeliest token after each of up to PASS_ROWS tokens from `start` on, with sub-layers skipped."""
        self._inputs.put(tokens, start)
        self._flags.set(skip)
        rows = len(tokens)
        self._graphs.run(("likeliest", self._name, rows), lambda: self._likeliest(rows))
        guessed: list[int] = self._guessed[:rows].tolist()
        return guessed

    def parameters(self) -> int:
        """Number of weights."""
        return self.decoder.parameters()

    def memory(self) -> int:
        """Bytes held on the device."""
        return self.decoder.memory()

    def _likeliest(self, rows: int) -> None:
        inputs = self._inputs
        try:
            self.decoder.forward(inputs.tokens, inputs.start, rows, self._flags)
            for first in range(0, rows, VERIFY_ROWS):
                count = min(VERIFY_ROWS, rows - first)
                logits = self.decoder.logits(first, count)[:count, : self._vocab]
                torch.argmax(logits, -1, out=self._guessed[first : first + count])
        finally:
            # The whole model rewrites its own KV entries, bit for bit the same.
            self.decoder.forward(inputs.tokens, inputs.start, rows)

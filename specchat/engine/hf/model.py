"""A model that transformers runs, eagerly, on the CPU or a GPU, with what it remembers."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from specchat.engine.decoding.passes import BLOCK
from specchat.engine.errors import ModelError
from specchat.engine.hf.memory import Alone, Recorded
from specchat.engine.hf.positions import settle
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.runs import Runs

RIDING = 16
"""Tokens that a pass reads again beside its own; more go before it, so that they are not read once more by the next."""
CACHES = ("cache", "past_key_values", "cache_params", "state")
"""What networks call their caches, those of transformers before 5.24 the second."""


class HfModel:
    """One sequence at a time, as `decoding.host.HostModel` asks for. Not thread-safe.

    Where `alone`, passes go on by one token only and nothing can be drafted; more tokens begin from the first.
    """

    def __init__(self, network: Any, context: int, label: str) -> None:
        """`network` is in evaluation mode, on its device; `label` names it in messages.

        Raises:
            ModelError: it keeps no cache.
        """
        settle(network, context)
        self.label = label
        self.context = context
        self.network = network
        taken = inspect.signature(network.forward).parameters
        self._key = next((key for key in CACHES if key in taken), "")
        if not self._key or network.config.is_encoder_decoder:
            raise ModelError(f"{label} does not write one token after the other from a cache, so it cannot chat.")
        self._few = "logits_to_keep" in taken
        self._text_config = network.config.get_text_config(decoder=True)
        self.vocab: int = self._text_config.vocab_size
        self.alone = False
        self._memory: Recorded | Alone = Recorded(self._text_config)
        self._text: list[int] = []
        """What was read, of which the memory holds the first `_held` tokens."""
        self._held = 0

    def read_alone(self, own: bool) -> None:
        """Go on by one token a pass from now on, with the network's `own` cache or one of transformers'."""
        config = self._text_config
        self.alone = True
        self._memory, self._text, self._held = Alone(lambda: None if own else DynamicCache(config=config)), [], 0

    @property
    def block(self) -> int:
        return self.context if self.alone else BLOCK

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Runs | None = None) -> Tensor:
        """Put `tokens` after the first `start` of what was read.

        Returns:
            logits float32 [len(tokens), vocab], on the host.
        """
        if runs is not None or skip != NOTHING:
            raise ValueError("transformers is asked for chains, through all layers")
        return self._pass(tokens, start, len(tokens))

    def logits(self, hidden: Tensor) -> Tensor:
        """What `forward` returned."""
        return hidden

    def keep(self, rows: Sequence[int], start: int) -> None:
        raise ValueError("transformers is asked for chains")

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put `tokens` after the first `start` of what was read."""
        self._pass(tokens, start, 1)
        self._memory.turn = self._held

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at slot `start`."""
        return self.forward([token], start)[0].clone()

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        raise ValueError("transformers leaves out no layers")

    def parameters(self) -> int:
        """Number of weights."""
        return int(self.network.num_parameters())

    def memory(self) -> int:
        """Bytes of the weights, and of the entries of all its context's tokens."""
        return int(self.network.get_memory_footprint()) + self._memory.size(self.context)

    def _pass(self, tokens: Sequence[int], start: int, rows: int) -> Tensor:
        """Logits of the last `rows` of `tokens`."""
        if start > len(self._text) or start + len(tokens) > self.context:
            raise ValueError(f"{len(tokens)} tokens do not fit after {start} of {self.context}")
        # A target may choose a padding token that a draft has no row for.
        fed = [min(token, self.vocab - 1) for token in tokens]
        self._held = self._memory.back(self._held, min(start, self._held), len(fed))
        again = self._text[self._held : start]
        self._text[start:] = fed
        if not self.alone and again and (len(fed) == 1 or len(again) > RIDING):
            # One row goes by itself, as those of plain decoding do.
            for first in range(0, len(again), BLOCK):
                self._run(again[first : first + BLOCK], 1)
            again = []
        elif self.alone and again and len(fed) == 1:
            self._run(again, 1)
            again = []
        return self._run(again + fed, rows)

    def _run(self, tokens: Sequence[int], rows: int) -> Tensor:
        memory, held = self._memory, self._held
        memory.begin(held)
        options: dict[str, Any] = {self._key: memory.cache, "use_cache": True}
        if self._few:
            options["logits_to_keep"] = rows
        # Whatever ends the pass early leaves some layers further than others.
        self._held = 0
        try:
            with torch.inference_mode():
                ids = torch.tensor([list(tokens)], device=self.network.device)
                made = self.network(input_ids=ids, return_dict=True, **options)
                memory.cache = getattr(made, self._key) if memory.cache is None else memory.cache
                logits: Tensor = made.logits[0, -rows:].float().cpu()
        except BaseException:
            self._memory.forget()
            raise
        self._held = held + len(tokens)
        return logits

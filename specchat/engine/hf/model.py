"""A model that transformers runs eagerly on the CPU or a GPU, with its cache."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from specchat.clean import one_line
from specchat.engine.decoding.row_invariance import BLOCK, UNEVEN_BLOCK, ChainOnlyModel
from specchat.engine.errors import ModelError
from specchat.engine.hf.memory import OpaqueCache, RollbackCache
from specchat.engine.hf.positions import fix_frequencies

MAX_REREAD_TOKENS = 16
"""Tokens that a pass rereads beside its own. More go into a pass before it, whose end the next one can start from."""
CACHE_PARAMETERS = ("cache", "past_key_values", "cache_params", "state")
"""Names of the cache in the networks' signatures; before transformers 5.24 it was the second."""


class HfModel(ChainOnlyModel):
    """A network of transformers with its cache.

    With `alone`, a pass either adds one token or starts from the first; drafts are not supported.
    """

    program = "transformers"

    def __init__(self, network: Any, context: int, label: str) -> None:
        """Wrap a `network` in evaluation mode; `label` names it in messages.

        Raises:
            ModelError: it has no cache, or settings that transformers makes none of.
        """
        fix_frequencies(network, context)
        self.label = label
        self.context = context
        self.network = network
        taken = inspect.signature(network.forward).parameters
        self._key = next((key for key in CACHE_PARAMETERS if key in taken), "")
        if not self._key or network.config.is_encoder_decoder:
            raise ModelError(f"{label} does not write one token after the other from a cache, so it cannot chat.")
        self._few = "logits_to_keep" in taken
        self._text_config = network.config.get_text_config(decoder=True)
        self.vocab: int = self._text_config.vocab_size
        self.alone = False
        try:
            self._memory: RollbackCache | OpaqueCache = RollbackCache(self._text_config)
        except Exception as error:  # wrong settings raise anything
            raise ModelError(f"{label} cannot be run: transformers says: {one_line(str(error), 200)}.") from None
        self._tokens: list[int] = []
        """Input so far, of which the cache holds the first `_held` tokens."""
        self._held = 0

    def read_alone(self, own: bool) -> None:
        """Read one token a pass from now on, with the network's `own` cache or transformers' default."""
        config = self._text_config
        self.alone = True
        self._memory, self._tokens, self._held = (
            OpaqueCache(lambda: None if own else DynamicCache(config=config)),
            [],
            0,
        )

    @property
    def block(self) -> int:
        if self.alone:
            return self.context
        return UNEVEN_BLOCK if self.uneven else BLOCK

    def run(self, tokens: Sequence[int], start: int) -> Tensor:
        return self._pass(tokens, start, len(tokens))

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Run `tokens` at position `start` without logits."""
        self._pass(tokens, start, 1)
        self._memory.turn = self._held

    def parameters(self) -> int:
        return int(self.network.num_parameters())

    def memory(self) -> int:
        """Bytes of the weights and of a full KV cache."""
        return int(self.network.get_memory_footprint()) + self._memory.size(self.context)

    def _pass(self, tokens: Sequence[int], start: int, rows: int) -> Tensor:
        """Logits of the last `rows` of `tokens`."""
        if start > len(self._tokens):
            raise ValueError(f"{len(self._tokens)} tokens are read, and no pass begins after {start}")
        fed = self.fed(tokens, start)
        self._held = self._memory.roll_back(self._held, min(start, self._held), len(fed))
        self._cut(self._held)
        reread = self._tokens[self._held : start]
        self._tokens[start:] = fed
        if not self.alone and reread and (len(fed) == 1 or len(reread) > MAX_REREAD_TOKENS):
            # A single row runs by itself, as in plain decoding.
            for first in range(0, len(reread), self.block):
                self._run(reread[first : first + self.block], 1)
            reread = []
        elif self.alone and reread and len(fed) == 1:
            self._run(reread, 1)
            reread = []
        return self._run(reread + fed, rows)

    def _run(self, tokens: Sequence[int], rows: int) -> Tensor:
        memory, held = self._memory, self._held
        memory.begin(held)
        options: dict[str, Any] = {self._key: memory.cache, "use_cache": True}
        if self._few:
            options["logits_to_keep"] = rows
        # A pass that fails leaves some layers ahead of others.
        self._held = 0
        try:
            with torch.inference_mode():
                ids = torch.tensor([list(tokens)], device=self.network.device)
                made = self.network(input_ids=ids, return_dict=True, **options)
                memory.cache = getattr(made, self._key) if memory.cache is None else memory.cache
                logits: Tensor = made.logits[0, -rows:].float().cpu()
        except BaseException:
            self._memory.clear()
            raise
        self._held = held + len(tokens)
        self._wrote(held, len(tokens))
        return logits

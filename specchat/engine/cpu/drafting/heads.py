"""Trained heads compiled: a layer over rows that follow each other, and an EAGLE head's chain in one call.

One thread runs them: torch does what takes long enough for several.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.description.buffers import pass_buffers
from specchat.engine.cpu.description.layers import Layers, pass_spans
from specchat.engine.cpu.description.steps import Arrays, product_addresses
from specchat.engine.cpu.drafting.chain import Chains
from specchat.engine.cpu.layers.passes import HEAD as HEAD_CODE
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.primitives.records import HEAD, PASS, Structure
from specchat.engine.cpu.threads.dispatch import board, lead
from specchat.engine.memory.vectors import FEW, LANES, attention_room, panels_for
from specchat.engine.model.passes import ChainParameters
from specchat.engine.model.rows import TILE
from specchat.engine.model.tree_layout import chain as chain_layout
from specchat.engine.program.lower import lower_layer
from specchat.engine.recipe import Layer, Norm


class CompiledLayer:
    """Packed weights and buffers of a head's layer, as in `reference/layer.py`; its caller owns the KV cache."""

    def __init__(
        self,
        layer: Layer,
        products: Sequence[tuple[Tensor, Tensor | None]],
        norms: Mapping[Norm, Tensor],
        cache: tuple[Tensor, Tensor],
        rope: tuple[Tensor, Tensor],
    ) -> None:
        """Pack `layer`.

        Args:
            products: matrix float32 [outputs, inputs] and bias of each of its products.
            norms: the weight of each of its norms, float32 [size].
            cache: keys and values float32 [kv_heads, capacity, head_dim], the capacity a multiple of four.
            rope: cos and sin float32 [capacity, head_dim].
        """
        self._packed = Packed()
        for index, (matrix, bias) in enumerate(products):
            halved = layer.products[index] == layer.gated.gate_up and not layer.gated.ungated
            self._packed.add(matrix, bias, (len(matrix) // 2,) if halved else ())
        self._table = table = self._packed.table
        hidden, (_, capacity, size) = len(products[-1][0]), cache[0].shape
        weights = {norm: weight.numpy() for norm, weight in norms.items()}
        (keys, values), (cos, sin) = ([one.numpy() for one in pair] for pair in (cache, rope))
        wide = np.zeros((TILE, LANES * (int(table["panels"].max()) + panels_for(hidden))), np.float32)
        own = np.zeros((1, 2, TILE, max(hidden, FEW * LANES)), np.float32)
        buffers = pass_buffers(wide, own, np.zeros((1, attention_room(capacity, size)), np.float32))
        arrays = Arrays(product_addresses([layer], table), weights, [(keys, values)], [(cos, sin)], wide.shape[1])
        _, *rest = lower_layer(layer)  # the inputs are given, in place of the norm
        self._layers = Layers([rest], arrays)
        steps, parts = self._layers.steps, np.ones((2, 3), np.int64)
        self._run = Structure(PASS, hidden=hidden, scratch_row=-1, parts=parts, head_code=HEAD_CODE, **buffers)
        self._run.set(steps=steps, step_count=len(steps), input_row=int(table[0]["inputs"]))
        self._layouts = [pass_spans(chain_layout(max(1, rows))) for rows in range(TILE + 1)]
        self._board = board(1)

    def __call__(self, inputs: Tensor, residual: Tensor, start: int) -> Tensor:
        """Run the layer over 1 to TILE rows float32 [rows, inputs] from position `start` on; attend to all before.

        Returns:
            `residual` plus the layer's output, float32 [rows, hidden].
        """
        x, attended = residual.clone(), inputs.contiguous()
        layout = self._layouts[len(x)]
        self._run.set(
            x=x.numpy(), rows=len(x), start=start, spans=layout.spans, span_count=1, input=attended.data_ptr()
        )
        lead(self._board, self._run.address, 1)
        return x

    def pass_record(self) -> Structure:
        """Return a pass over the layer, without rows."""
        return self._run.copy()

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()


class HeadChain:
    """Drafter of chains: a head of one layer and the full vocabulary, with the embeddings of a compiled target."""

    def __init__(
        self,
        layer: CompiledLayer,
        embed: NDArray[Any],
        embed_scale: float,
        norms: tuple[Tensor, Tensor, Tensor],
        eps: float,
        scoring: Tensor,
        made: Tensor,
        onto_normed: bool,
    ) -> None:
        """Pack the head's output matrix.

        Args:
            embed: the product of the target's embeddings, PRODUCT [1], which are multiplied by `embed_scale`.
            norms: of tokens, of features, and before the output matrix: float32 [hidden] each.
            scoring: float32 [vocab, hidden].
            made: float32 [capacity, hidden], filled with the features that the head makes.
            onto_normed: True if the layer adds to the normed features.
        """
        vocab, hidden = scoring.shape
        self._packed = Packed()
        self._packed.add(scoring)
        table = self._packed.table
        logits, inputs = (
            np.zeros((1, LANES * int(table[0]["panels"])), np.float32),
            np.zeros((TILE, 2 * hidden), np.float32),
        )
        head = Structure(HEAD, matrix=table, norm=norms[2].numpy(), eps=eps, logits=logits, logits_row=logits.shape[1])
        run = layer.pass_record()
        run.set(input=inputs)
        self._features = np.zeros((TILE, hidden), np.float32)
        self._chains = Chains(
            run,
            head,
            embed,
            vocab,
            nested=0,
            embed_scale=embed_scale,
            eps=eps,
            onto_normed=onto_normed,
            token_ids=np.zeros(len(made) + 1, np.int64),
            x=self._features,
            logits=logits,
            inputs=inputs,
            norms=np.stack([norm.numpy() for norm in norms[:2]]),
            made=made.numpy(),
        )

    def draft_chain(
        self, tokens: Sequence[int], start: int, features: Tensor, chain: ChainParameters
    ) -> list[tuple[int, float]]:
        """Draft a chain (`CachedDecoder.draft_chain`) after up to TILE tokens; `features` float32 [rows, hidden]."""
        self._features[: len(tokens)] = features.numpy()
        return self._chains.draft_chain(tokens, start, chain)

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()

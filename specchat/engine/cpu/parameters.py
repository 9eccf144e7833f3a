"""Weights of a compiled decoder: packed products, norms and embeddings, read once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.description.operations import CPU
from specchat.engine.cpu.packed import Packed, look_up
from specchat.engine.cpu.padding import pad_norms, pad_out, pad_qkv, pad_rows
from specchat.engine.cpu.token_table import TokenTable
from specchat.engine.formats.gguf import FIELDS, SIZES, TYPES
from specchat.engine.formats.layout import FileRows, Table, Unread, Weight
from specchat.engine.formats.quantise import by_rows
from specchat.engine.program.lower import lower
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Attention, Layer, Matrix
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import TensorSource, as_table, int8_head, packing, read_matrix, walk
from specchat.engine.weights.weights import Weights

Floats = NDArray[np.float32]
Added = TypeVar("Added")


class InFile:
    """A `TensorSource` that leaves matrices in blocks in their GGUF file, until a product is made of them."""

    def __init__(self, weights: Weights) -> None:
        self.device, self.get, self._weights = weights.device, weights.get, weights

    def linear(self, name: str, outputs: int, inputs: int) -> Weight:
        kind = self._weights.stored_dtype(f"{name}.weight")
        if kind in FIELDS:
            (size, octets), raw = SIZES[kind], self._weights.part(f"{name}.weight").contiguous()
            if inputs % size == 0 and tuple(raw.shape) == (outputs, inputs // size * octets):
                return FileRows(raw.data_ptr() + raw.shape[1] * torch.arange(outputs), kind, inputs, (raw,))
        return self._weights.linear(name, outputs, inputs)


class Parameters:
    """Weights of a model in the form that `passes` takes.

    Attributes:
        table: PRODUCT [products], the head's last, before it that of inputs of layers if there is one.
        layer_rows: the table of such inputs; None without.
        norms: the weight of each norm of the layers and its bias, if any, float32 [size in whole vectors] each.
        vectors: other tensors of the layers by name, float32 [size].
        last_norm: of `read_norm`, float32 [values].
        tokens: token ids that the head scores, int64; None for all.
        embeddings: PRODUCT [1] whose outputs are the embeddings: the head's if they are tied to it.
    """

    def __init__(self, checkpoint: Checkpoint, quant: Quant | None) -> None:
        """Read the weights; layers that the checkpoint does not quantise are stored as `quant`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._recipe = c = checkpoint.config.recipe
        self._packed = Packed(activations=checkpoint.activations)
        op = lower(c).embed
        self._embedded = {normed: CPU.run(op if normed else replace(op, eps=None)) for normed in (True, False)}
        with Weights(checkpoint) as weights:
            weights.check(c)
            pack = packing(quant if weights.quant is None else None)

            def product(form: Matrix, count: int, _: Matrix | None, layer: Layer | None) -> None:
                mixer = layer.mixer if layer else None
                ends = form.outputs[:1] if mixer and form not in mixer.products and len(form.outputs) == 2 else ()

                def add(matrix: Matrix, source: TensorSource) -> None:
                    weight, bias = read_matrix(source, matrix, pack)
                    if isinstance(mixer, Attention) and form == mixer.qkv:
                        weight, bias = pad_qkv(mixer, weight, bias)
                    elif isinstance(mixer, Attention) and form == mixer.out:
                        weight = pad_out(mixer, weight)
                    self._packed.add(weight, bias, ends)

                for number in range(count):
                    _from_file_or(weights, partial(add, form.of(number)))

            _, norms, self.vectors = walk(c, weights, product, Tensor.numpy)
            self.layer_rows = None if c.per_layer is None else _table(weights, c.per_layer.table)
            self.last_norm: Floats = norms.pop(c.norm)
            self.norms = pad_norms(c, norms)
            self.tokens = None if checkpoint.drafts is None else torch.tensor(checkpoint.drafts)
            shared = c.tied and self.tokens is None and checkpoint.head is None
            self._embeddings = None if shared else _table(weights, c.embed)

            def add_head(source: TensorSource) -> None:
                head = _read_table(source, c.embed if c.tied else c.head)
                scored = head if self.tokens is None else by_rows(head, itemgetter(self.tokens))
                self._packed.add(int8_head(scored) if checkpoint.head else scored)

            _from_file_or(weights, add_head)
        self.table = self._packed.table
        self.embeddings: NDArray[Any] = self._embeddings.product if self._embeddings else self.table[-1:]

    def embed(self, tokens: Sequence[int] | Tensor, normed: bool = True) -> Tensor:
        """Inputs of the first layer, float32 [tokens, hidden]; without `normed` before any norm of embeddings."""
        # A target may choose a padding token that a draft model has no row for.
        last = self._recipe.vocab - 1
        known = [min(token, last) for token in tokens]
        table = self._embeddings
        rows = table.rows(known) if table else torch.from_numpy(look_up(self.embeddings, known))
        embedded: Tensor = self._embedded[normed](rows[:, : self._recipe.hidden])
        return embedded

    def scatter(self, scores: Tensor) -> Tensor:
        """Scatter the head's logits over the whole vocabulary, float32 [rows, vocab]: -inf for tokens without a row."""
        if self.tokens is None:
            return scores[:, : self._recipe.vocab]
        whole = scores.new_full((len(scores), self._recipe.vocab), float("-inf"))
        return whole.index_copy_(1, self.tokens, scores[:, : len(self.tokens)])

    def memory(self) -> int:
        """Bytes held."""
        norms = sum(one.nbytes for one in (*self.norms.values(), *self.vectors.values(), self.last_norm))
        tables = [table for table in (self._embeddings, self.layer_rows) if table is not None]
        return self._packed.memory() + norms + sum(table.memory() for table in tables)


def _from_file_or(weights: Weights, add: Callable[[TensorSource], Added]) -> Added:
    """Add a matrix from the bytes of its file, or as `weights` reads it."""
    try:
        return add(InFile(weights))
    except Unread:
        return add(weights)


def _table(weights: Weights, matrix: Matrix) -> TokenTable:
    return _from_file_or(weights, lambda source: TokenTable(_read_table(source, matrix)))


def _read_table(source: TensorSource, matrix: Matrix) -> Table | FileRows:
    """A table in whole vectors; MXFP4 becomes float32, as the plan counts it."""
    weight, _ = read_matrix(source, matrix, packing(None))
    return weight if isinstance(weight, FileRows) and weight.kind in TYPES else pad_rows(as_table(weight))

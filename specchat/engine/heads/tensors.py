"""Tensors of heads, read by the recipe of their parts, and checks that they fit a target."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.heads.files import HeadFiles
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rope import tables
from specchat.engine.model.rows import Linear
from specchat.engine.recipe import Attention, Experts, Layer, Matrix, Norm, Rope
from specchat.engine.weights.matrices import read_norm
from specchat.engine.weights.weights import Weights

Part = TypeVar("Part", Matrix, Norm)


class HeadTensors:
    """Tensors of a head for `reference.layer`. Its products only draft, so their rounding does not matter."""

    def __init__(self) -> None:
        self._norms: dict[Norm, RMSNorm] = {}
        self._vectors: dict[str, Tensor] = {}
        self._products: dict[Matrix, Callable[[Tensor], Tensor]] = {}
        self._stacks: dict[Matrix, Tensor] = {}
        self._rotations: dict[tuple[Rope | None, int, int], tuple[Tensor, Tensor]] = {}
        self._bytes = 0

    def norm(self, of: Norm) -> RMSNorm:
        """Return a norm with its weight."""
        return self._norms[of]

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        """Return x W^T + b: float32 [rows, inputs] -> float32 [rows, outputs]."""
        return self._products[of](x)

    def memory(self) -> int:
        """Bytes of matrices and tables."""
        return self._bytes

    def read(self, weights: Weights, part: Part) -> Part:
        """Read a part, and return it.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        if isinstance(part, Norm):
            self._norms[part] = RMSNorm(read_norm(weights, part), part.eps)
        elif part not in self._products:
            self.put(part, *read_linear(weights, part))
        return part

    def put(self, part: Matrix, weight: Tensor, bias: Tensor | None = None) -> Matrix:
        """Add `weight` float32 [outputs, inputs] and `bias` float32 [outputs] as `part`, and return that."""
        self._products[part] = made = Linear(weight, bias)
        self._bytes += made.memory()
        return part

    def stack(self, of: Matrix) -> Tensor | None:
        """Return a matrix of all experts, bfloat16 [experts * outputs, inputs]; None unless a GPU holds them so."""
        return self._stacks.get(of)

    def vector(self, name: str) -> Tensor:
        """Return another tensor of a layer, by its name."""
        return self._vectors[name]

    def read_layer(self, weights: Weights, of: Layer, apart: bool = False) -> Layer:
        """Read a layer, and return it.

        With `apart` queries have their own product, so that keys and values can be computed alone.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        qkv, *others = of.products
        parts = (qkv.only(0, 1), of.attention.key_value) if apart else (qkv,)
        if isinstance(of.feed, Experts) and weights.device.type != "cpu":
            self._read_stacks(weights, of.feed)
        for matrix in (*parts, *others):
            self.read(weights, matrix)
        if apart:
            self._products[qkv] = lambda x: torch.cat([self.product(x, part) for part in parts], -1)
        for norm in of.norms:
            self.read(weights, norm)
        self._vectors |= {name: weights.get(name, *shape) for name, shape in of.vectors.items()}
        return of

    def _read_stacks(self, weights: Weights, of: Experts) -> None:
        """Read experts into stacks, of which their own matrices are views; none where the stacks would not suffice."""
        if of.apart or of.each.ungated or of.each.gate_up.bias or of.each.down.bias:
            return
        for matrix in (of.each.gate_up, of.each.down):
            rows = sum(matrix.outputs)
            stack = torch.empty(of.count * rows, matrix.inputs, dtype=torch.bfloat16, device=weights.device)
            for number, part in enumerate(stack.split(rows)):
                own = matrix.of(number)
                part.copy_(read_linear(weights, own)[0])
                self.put(own, part)
            self._stacks[matrix] = stack

    def rotations(self, of: Attention, slots: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of `slots` positions, one pair of tables for all layers with the same rope."""
        key = of.rope, of.rotary_dim, slots
        if key not in self._rotations:
            cos, sin = tables(of.rope, of.rotary_dim, slots)
            self._rotations[key] = cos.to(device), sin.to(device)
        return self._rotations[key]

    def table(self, weights: Weights, name: str, *shape: int) -> Tensor:
        """Return the lookup table `name` of exactly `shape`.

        Raises:
            ModelError: it is missing, damaged or of another shape.
        """
        found = weights.get(name, *shape)
        self._bytes += found.nbytes
        return found


def read_linear(weights: Weights, part: Matrix) -> tuple[Tensor, Tensor | None]:
    """Return the matrix float32 [outputs, inputs] and its bias float32 [outputs] or None.

    Raises:
        ModelError: they are missing, damaged or of other shapes.
    """
    found = [weights.get(f"{name}.weight", outputs, part.inputs) for name, outputs in part.parts]
    biases = [weights.get(f"{name}.bias", outputs) for name, outputs in part.parts] if part.bias else []
    return torch.cat(found), torch.cat(biases) if biases else None


def scatter(few: Tensor, tokens: Tensor, vocab: int, others: float = float("-inf")) -> Tensor:
    """Scatter values float32 [rows, proposed] of `tokens` int64 [proposed] into float32 [rows, vocab] of `others`."""
    return few.new_full((len(few), vocab), others).index_copy_(1, tokens, few)


def with_bias(weights: Weights, part: Matrix) -> Matrix:
    """Return `part` with biases if they are stored."""
    return replace(part, bias=f"{part.names[0]}.bias" in weights)


def as_stored(weights: Weights, of: Layer) -> Layer:
    """Return a layer with the biases and query and key norms that are stored, whatever its settings say."""
    mixer, feed = of.attention, of.gated
    prefix = mixer.out.names[0].rpartition(".")[0]
    query, key = (
        Norm(f"{prefix}.{name}", mixer.head_dim, of.norms[0].eps) if f"{prefix}.{name}.weight" in weights else None
        for name in ("q_norm", "k_norm")
    )
    qkv, out = with_bias(weights, mixer.qkv), with_bias(weights, mixer.out)
    return replace(
        of,
        mixer=replace(mixer, qkv=qkv, out=out, query_norm=query, key_norm=key),
        feed=replace(feed, gate_up=with_bias(weights, feed.gate_up), down=with_bias(weights, feed.down)),
    )


def fits_target(files: HeadFiles, weights: Weights, target: int, hidden: int, inputs: int, name: str = "fc") -> None:
    """Check from the shape of matrix `name` that a head is for a target of this hidden size.

    Raises:
        ModelError: it is not.
    """
    if (shape := weights.shape(f"{name}.weight")) and shape != (hidden, inputs):
        raise ModelError(
            f"{files.folder}: this head is for another target or its config.json for another head: tensor "
            f"{name}.weight has shape {list(shape)}, and with this target, whose hidden size is {target}, it is "
            f"{[hidden, inputs]}."
        )


def draft_vocabulary(weights: Weights, rows: int, vocab: int) -> Tensor:
    """Draft vocabulary of a head: the token int64 [rows] of each row.

    Raises:
        ModelError: the head's vocabulary map has unknown tokens or contradicts itself.
    """
    tokens = torch.arange(rows, device=weights.device)
    if "d2t" in weights:
        tokens = tokens + weights.integers("d2t", rows)
    elif rows != vocab:
        raise ModelError(f"{weights.folder}: the head proposes {rows} of {vocab} tokens, and tensor d2t is missing.")
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocab:
        wrong = least if least < 0 else most
        raise ModelError(f"{weights.folder}: tensor d2t leads to token {wrong}, and the target has {vocab}.")
    if len(tokens.unique()) != rows:
        raise ModelError(f"{weights.folder}: tensor d2t leads to a token twice.")
    if "t2d" in weights:
        known = weights.integers("t2d", vocab)
        if int(known.sum()) != rows or not bool(known[tokens].all()):
            raise ModelError(f"{weights.folder}: tensors d2t and t2d are about different tokens.")
    return tokens

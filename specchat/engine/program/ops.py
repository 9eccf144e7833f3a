"""The operations of a pass: frozen values that name the buffers they read and write.

A field with a default is a feature, in an operation and in the pieces of the recipe that it runs. Each executor's
function reads all features of its operation, or `table.LACKING` lists those that it does not have.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from specchat.engine.recipe import (
    Activation,
    Attention,
    Delta,
    Experts,
    Gated,
    Latent,
    LayerInput,
    Matrix,
    Norm,
    PerLayer,
    ShortConv,
)

Half = Literal["start", "mixer", "feed", "end"]
"""The half of a layer that an operation belongs to. It is left out with the half, start and end with both halves."""


@dataclass(frozen=True)
class Buffer:
    """Values of a pass's rows between two operations. Buffers of one name share memory.

    Attributes:
        width: values of a row.
        summed: sums of a product or what is added to the residual stream, in float32; otherwise inputs of a product, in
            the executor's compute type.
    """

    name: str
    width: int
    summed: bool = False


@dataclass(frozen=True)
class Embed:
    """residual = scale * table[tokens], through a norm without a weight where `eps` is given."""

    table: Matrix
    scale: float = 1.0
    eps: float | None = None


@dataclass(frozen=True)
class MakeInputs:
    """inputs = the inputs of all layers by token; the residual stream holds the embeddings."""

    pieces: ClassVar = (PerLayer,)

    of: PerLayer


@dataclass(frozen=True)
class Normalise:
    """out = norm(residual), or the residual stream as it is without a norm."""

    norm: Norm | None
    out: Buffer


@dataclass(frozen=True)
class Multiply:
    """out = matrix source + bias."""

    matrix: Matrix
    source: Buffer
    out: Buffer


@dataclass(frozen=True)
class GatedProduct:
    """out = activation(gate source) * up source, or activation(up source): the first half of an MLP."""

    pieces: ClassVar = (Gated,)

    of: Gated
    source: Buffer
    out: Buffer


@dataclass(frozen=True)
class Expand:
    """out = queries, keys and values of all heads, of the latents in `source`; a head begins with its rotated part."""

    pieces: ClassVar = (Latent,)

    of: Latent
    attention: Attention
    source: Buffer
    out: Buffer


@dataclass(frozen=True)
class Attend:
    """out = what the heads mix, from queries, keys and values in `source`; the rows become KV entries."""

    pieces: ClassVar = (Attention,)

    of: Attention
    source: Buffer
    out: Buffer


@dataclass(frozen=True)
class Convolve:
    """out = C * convolution(B * z), from B, C and z in `source`; B * z of the rows become entries."""

    pieces: ClassVar = (ShortConv,)

    of: ShortConv
    source: Buffer
    out: Buffer


@dataclass(frozen=True)
class Advance:
    """out = the inputs of the last product, from the rows' products and gates; recurrent states go on by the rows."""

    pieces: ClassVar = (Delta,)

    of: Delta
    source: Buffer
    gates: Buffer | None
    out: Buffer


@dataclass(frozen=True)
class Mix:
    """out = the output of a mixture of experts. Router, experts and shared MLP have inputs of their own if `apart`."""

    pieces: ClassVar = (Experts, Gated)

    of: Experts
    source: Buffer
    of_experts: Buffer
    of_shared: Buffer
    out: Buffer


@dataclass(frozen=True)
class GateInput:
    """out = activation(gate residual) * the layer's inputs by token."""

    pieces: ClassVar = (LayerInput,)

    of: LayerInput
    activation: Activation
    out: Buffer


@dataclass(frozen=True)
class Add:
    """residual += factor * post(source)."""

    source: Buffer
    post: Norm | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Scale:
    """residual *= the tensor [1] called `vector`."""

    vector: str


@dataclass(frozen=True)
class Head:
    """logits = scale * matrix norm(residual), with a `cap` as in `Recipe`."""

    norm: Norm
    matrix: Matrix
    scale: float = 1.0
    cap: float = 0.0


Kind = Normalise | Multiply | GatedProduct | Expand | Attend | Convolve | Advance | Mix | GateInput | Add | Scale
"""The operations within layers."""


@dataclass(frozen=True)
class Op:
    """An operation of a layer, by its index, with the half that it belongs to."""

    layer: int
    half: Half
    kind: Kind


@dataclass(frozen=True)
class Program:
    """A pass: embeddings, then layers, then logits. A pass over some of the layers takes a slice of `layers`."""

    embed: Embed
    inputs: MakeInputs | None
    layers: tuple[tuple[Op, ...], ...]
    head: Head

    @property
    def parallel(self) -> bool:
        """True where both halves of a layer have the same inputs."""
        return any(op.half == "start" for layer in self.layers for op in layer)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The operations without their layers, in the order of a pass."""
        first = (self.embed, self.inputs) if self.inputs else (self.embed,)
        return *first, *(op.kind for layer in self.layers for op in layer), self.head

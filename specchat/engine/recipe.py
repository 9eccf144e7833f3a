"""A model as a recipe: computation of its layers, and their tensors in a checkpoint.

Families write recipes, executors interpret them. Weights, caches, buffers, the memory plan and exports are derived from
recipes. Torch is not imported here, since the app imports this.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu"]
"""x sigmoid(x), x Phi(x) with Phi by its tanh (Hendrycks and Gimpel 2016), or gpt-oss's gate (`cpu/gates.py`)."""

MOST_EXPERTS = 1024
"""No published layer has half of them."""


class Unsupported(ValueError):
    """A feature of a model that no executor supports; the message names it."""


@dataclass(frozen=True)
class Norm:
    """A root mean square norm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * weight.

    Attributes:
        name: of the weight, without ".weight"; empty: no weight.
        size: values that share a mean.
        plus_one: the file holds the weight less 1.
        factor: the weight is that of the file times this.
    """

    name: str
    size: int
    eps: float
    plus_one: bool = False
    factor: float = 1.0


@dataclass(frozen=True)
class Rope:
    """Rotary position embeddings over the halves of `width` values (Su et al. 2021), and their scaling.

    Attributes:
        kind: default, linear, llama3, yarn, longrope or proportional.
        options: of the scaling, by the keys of transformers' "rope_parameters".
    """

    theta: float
    kind: str
    width: int
    options: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Matrix:
    """A product of one or more stored matrices of the same inputs, concatenated along the outputs.

    `names` are without ".weight" and ".bias"; with `bias` each has one, [outputs]. A single name holds all `outputs`.
    A `dense` product is never quantised when it is loaded. `paired` are the rows of a head and those of them to rotate,
    in the first two matrices, where neighbours make pairs; they are read in the order of `Rope`: the first of each
    pair, then the second.
    """

    names: tuple[str, ...]
    outputs: tuple[int, ...]
    inputs: int
    bias: bool = False
    dense: bool = False
    paired: tuple[int, int] = (0, 0)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """(name, outputs) of each stored matrix."""
        outputs = (sum(self.outputs),) if len(self.names) == 1 else self.outputs
        return tuple(zip(self.names, outputs, strict=True))

    def fused(self, name: str) -> "Matrix":
        """The same product, stored as one matrix."""
        return replace(self, names=(name,))

    def only(self, first: int, last: int) -> "Matrix":
        """The product of the stored matrices `first`, ..., `last` - 1 alone."""
        return replace(self, names=self.names[first:last], outputs=self.outputs[first:last])

    def order(self, place: int) -> list[int]:
        """The rows of stored matrix `place` in the order of `Rope`; empty where they have that order."""
        (head, rotated), outputs = self.paired, self.outputs[place]
        if not rotated or place > 1:
            return []
        of_head = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, head)]
        return [first + row for first in range(0, outputs, head) for row in of_head]

    def of(self, number: int) -> "Matrix":
        """The matrix of expert `number`, for which "{}" stands in the names."""
        return replace(self, names=tuple(name.format(number) for name in self.names))

    @property
    def parameters(self) -> int:
        """Values of the matrices and their biases."""
        return sum(self.outputs) * (self.inputs + self.bias)


@dataclass(frozen=True)
class Attention:
    """Attention of `heads` query heads, groups of which share one of `kv_heads` keys and values.

    Attributes:
        qkv: queries, keys and values, concatenated.
        scale: factor on the scores before their softmax.
        rope: rotation of queries and keys; None: not rotated.
        query_norm, key_norm: before the rotation, over each head or over all heads together (see `Norm.size`).
        value_norm: over each head.
        temper: (beta, length): queries at position p are multiplied by 1 + beta * ln(1 + floor(p / length)), as in
            Llama 4 and Ministral 3; beta 0: by 1.
        sinks: name of the tensor [heads] of scores, scaled already, that a value of zeros has beside the others
            (Xiao et al. 2023); empty: none.
        gated: each query in `qkv` is followed by a gate of its size, whose sigmoid its head's output is multiplied by.
        window: positions that a token attends to, including its own; 0: all.
        causal: a token attends to none after it; else to all of its pass, as in heads that draft a block at once.
        share: the layer before this one whose KV entries are attended to; `qkv` holds queries alone. None: its own.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    qkv: Matrix
    out: Matrix
    rope: Rope | None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    value_norm: Norm | None = None
    temper: tuple[float, float] = (0.0, 1.0)
    sinks: str = ""
    gated: bool = False
    window: int = 0
    causal: bool = True
    share: int | None = None

    @property
    def key_value(self) -> Matrix:
        """Keys and values alone, of tokens that ask nothing."""
        return self.qkv.only(1, 3)

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The products before and after attention."""
        return self.qkv, self.out

    @property
    def norms(self) -> tuple[Norm | None, ...]:
        """The norms of heads."""
        return self.query_norm, self.key_norm, self.value_norm

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """As in `Layer`."""
        return {self.sinks: (self.heads,)}

    @property
    def entry(self) -> int:
        """Values of a KV entry: a key and a value of each key-value head; none where another layer's is attended to."""
        return 2 * self.kv_heads * self.head_dim if self.share is None else 0


@dataclass(frozen=True)
class Delta:
    """Gated DeltaNet (Yang et al. 2025): each value head has a matrix S [key_dim, value_dim] in place of KV entries.

    Queries, keys and values go through a causal convolution of each channel over `taps` tokens, then silu. With queries
    and keys of length 1, beta = sigmoid(b) and g = e^(-e^decay softplus(a + shift)) a token computes (equation 10)

        S = g S,  u = beta (v - S^T k),  S = S + k u^T,  y = S^T q / sqrt(key_dim)

    and the layer's output is out(norm(y) silu(z)). As many value heads in a row share a query and key head.

    Attributes:
        mix: queries, keys, values and z, concatenated.
        gates: b and a of each value head, concatenated.
        convolution: name of the tensor [channels, 1, taps]; the last tap is of the token itself.
        decay, shift: names of tensors [value_heads].
        norm: of each value head.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    mix: Matrix
    gates: Matrix
    out: Matrix
    norm: Norm
    convolution: str
    decay: str
    shift: str

    @property
    def sharing(self) -> int:
        """Value heads that share a query and key head."""
        return self.value_heads // self.key_heads

    @property
    def channels(self) -> int:
        """Values of all queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The first and the last product; that of the gates is small, and stands apart."""
        return self.mix, self.out

    @property
    def norms(self) -> tuple[Norm | None, ...]:
        """The norm of value heads."""
        return (self.norm,)

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """As in `Layer`."""
        heads = (self.value_heads,)
        return {self.convolution: (self.channels, 1, self.taps), self.decay: heads, self.shift: heads}

    @property
    def entry(self) -> int:
        """Values of a token's entry in the log of states: k, u and g of all heads, and inputs of the convolution."""
        return self.key_heads * self.key_dim + self.value_heads * (self.value_dim + 1) + self.channels

    @property
    def state(self) -> int:
        """Values of the matrices S."""
        return self.value_heads * self.key_dim * self.value_dim


@dataclass(frozen=True)
class Gated:
    """A gated MLP (Shazeer 2020): down(activation(gate(x)) * up(x)); gate and up are one product."""

    gate_up: Matrix
    down: Matrix
    activation: Activation = "silu"

    @property
    def width(self) -> int:
        """Values between the products."""
        return self.down.inputs


@dataclass(frozen=True)
class Apart:
    """Norms of a mixture whose router, experts and shared MLP each have their own, all of the layer's x (Gemma 4)."""

    router: Norm
    pre_experts: Norm
    post_experts: Norm
    pre_shared: Norm
    post_shared: Norm

    @property
    def all(self) -> tuple[Norm, ...]:
        """The norms."""
        return self.router, self.pre_experts, self.post_experts, self.pre_shared, self.post_shared


@dataclass(frozen=True)
class Experts:
    """A mixture of experts (Shazeer et al. 2017): `top` of `count` gated MLPs, chosen for each row alone.

    With p = softmax(router(x)) the output is the sum of p[e] times expert e's over the `top` largest p; of equal ones
    those of lower experts. The chosen p are divided by their sum if `renormalised`.

    Attributes:
        router: scores of all experts.
        each: every expert (see `Matrix.of`).
        sigmoid: p is the sigmoid of each score.
        correction: name of the tensor [count] added to p where experts are chosen, and not to their shares (Wang et al.
            2024); empty: none.
        groups: experts in a row make so many groups, and those of the second number of groups alone can be chosen: of
            the groups with the largest sums of their two largest p (DeepSeek 2024).
        factor: on the chosen p, at last.
        factors: name of the tensor [count] that the chosen p are multiplied by, at last; empty: by 1.
        shared: an MLP beside the experts, whose output is added for every row; None: none.
        shared_gate: a score of a row, whose sigmoid multiplies the output of `shared`; None: 1.
        apart: norms of router, experts and `shared` each; None: none, all have the same inputs.
    """

    router: Matrix
    each: Gated
    count: int
    top: int
    renormalised: bool
    sigmoid: bool = False
    correction: str = ""
    groups: tuple[int, int] = (1, 1)
    factor: float = 1.0
    factors: str = ""
    shared: Gated | None = None
    shared_gate: Matrix | None = None
    apart: Apart | None = None

    @property
    def plainly_routed(self) -> bool:
        """True where a softmax over all experts alone makes the choice and the shares."""
        kinds = self.sigmoid, self.correction, self.factors, self.apart
        return not any(kinds) and self.groups == (1, 1) and self.factor == 1

    def expert(self, number: int) -> Gated:
        """Expert `number`, from 0 on."""
        return replace(self.each, gate_up=self.each.gate_up.of(number), down=self.each.down.of(number))

    @property
    def width(self) -> int:
        """Values between the products of a row's experts."""
        return self.top * self.each.width + (self.shared.width if self.shared else 0)

    @property
    def forms(self) -> tuple[tuple[Matrix, int], ...]:
        """The matrices as in `Layer.forms`."""
        beside = (self.shared.gate_up, self.shared.down, self.shared_gate) if self.shared else ()
        of_each = (self.each.gate_up, self.count), (self.each.down, self.count)
        return (self.router, 1), *of_each, *((matrix, 1) for matrix in beside if matrix)


@dataclass(frozen=True)
class LayerInput:
    """x += norm(down(activation(gate(x)) * p)) with the layer's input p of `PerLayer`; the activation is the MLP's."""

    gate: Matrix
    down: Matrix
    norm: Norm


@dataclass(frozen=True)
class PerLayer:
    """Inputs of each layer by token, beside the hidden states (Gemma 3n, Gemma team 2025): `norm.size` values each.

    Those of all layers are norm(project(x)) + scale * row(token), x being the embedding of the token, with a norm over
    those of each layer.

    Attributes:
        table: the rows, in main memory.
    """

    table: Matrix
    project: Matrix
    norm: Norm
    scale: float

    @property
    def width(self) -> int:
        """Values of a token's inputs of all layers."""
        return sum(self.project.outputs)

    @property
    def parameters(self) -> int:
        """Values of the table, the product and the norm."""
        return self.table.parameters + self.project.parameters + self.norm.size


@dataclass(frozen=True)
class Layer:
    """x += residual * post_mixer(mixer(pre_mixer(x))), then the same of `feed`; a norm may be missing.

    Attributes:
        input: what is added after both halves, where one was not skipped; None: nothing.
        scalar: name of the tensor [1] that x is multiplied by at the end, where a half was not skipped; empty: none.
    """

    mixer: Attention | Delta
    feed: Gated | Experts
    pre_mixer: Norm | None
    pre_feed: Norm | None
    post_mixer: Norm | None = None
    post_feed: Norm | None = None
    residual: float = 1.0
    input: LayerInput | None = None
    scalar: str = ""

    @property
    def attention(self) -> Attention:
        """The mixer of a layer that is known to have attention."""
        assert isinstance(self.mixer, Attention)
        return self.mixer

    @property
    def share(self) -> int | None:
        """The layer before this one whose KV entries are attended to; None: no other's."""
        return self.mixer.share if isinstance(self.mixer, Attention) else None

    @property
    def gated(self) -> Gated:
        """The MLP, or any one of the experts."""
        return self.feed.each if isinstance(self.feed, Experts) else self.feed

    @property
    def widths(self) -> set[int]:
        """Values between the products of the MLPs."""
        shared = self.feed.shared if isinstance(self.feed, Experts) else None
        return {one.width for one in (self.gated, shared) if one}

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The matrices: all of a form, then those of the next, in the order of a pass."""
        return tuple(matrix.of(number) for matrix, count in self.forms for number in range(count))

    @property
    def forms(self) -> tuple[tuple[Matrix, int], ...]:
        """Forms of matrices and how many there are of each: one stands for those of all experts."""
        feed, mixer = self.feed, self.mixer
        of_feed = feed.forms if isinstance(feed, Experts) else ((feed.gate_up, 1), (feed.down, 1))
        last = (mixer.gates,) if isinstance(mixer, Delta) else ()
        of_input = (self.input.gate, self.input.down) if self.input else ()
        return *((matrix, 1) for matrix in mixer.products), *of_feed, *((matrix, 1) for matrix in (*last, *of_input))

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The norms of the layer."""
        apart = self.feed.apart.all if isinstance(self.feed, Experts) and self.feed.apart else ()
        own = self.input.norm if self.input else None
        every = self.pre_mixer, *self.mixer.norms, self.post_mixer, self.pre_feed, *apart, self.post_feed, own
        return tuple(norm for norm in every if norm is not None)

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors that are neither matrices nor weights of norms, by name."""
        found = {self.scalar: (1,), **self.mixer.vectors}
        if isinstance(self.feed, Experts):
            found |= {self.feed.factors: (self.feed.count,), self.feed.correction: (self.feed.count,)}
        return {name: shape for name, shape in found.items() if name}

    @property
    def parameters(self) -> int:
        """Values of all matrices, biases and norms."""
        vectors = sum(norm.size for norm in self.norms if norm.name) + sum(map(prod, self.vectors.values()))
        return sum(count * one.parameters for one, count in self.forms) + vectors

    @property
    def active(self) -> int:
        """Parameters that one row reads: of the experts, only those chosen."""
        feed = self.feed
        unread = feed.count - feed.top if isinstance(feed, Experts) else 0
        return self.parameters - unread * (self.gated.gate_up.parameters + self.gated.down.parameters)


@dataclass(frozen=True)
class Recipe:
    """A decoder: embeddings by `embed`, the layers, the last norm, and logits by `head`.

    A tied model's head is its table of embeddings. Embeddings are multiplied by `embed_scale`, logits by `logit_scale`.
    With a `cap` logits x are cap * tanh(x / cap) (Gemma 2, Gemma team 2024).
    """

    layers: tuple[Layer, ...]
    embed: Matrix
    norm: Norm
    head: Matrix
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    cap: float = 0.0
    per_layer: PerLayer | None = None

    def __post_init__(self) -> None:
        """Check which entries layers share.

        Raises:
            ValueError: a layer is to share those of one that is not before it, or that has none like them.
        """
        for index, layer in enumerate(self.layers):
            share = layer.share
            if share is None:
                continue
            if not 0 <= share < index:
                raise ValueError(f"layer {index} shares the KV entries of layer {share}, which is not before it")
            other, of = self.layers[share].mixer, layer.attention
            alike = isinstance(other, Attention) and (other.kv_heads, other.head_dim) == (of.kv_heads, of.head_dim)
            if not alike or self.layers[share].share is not None:
                raise ValueError(f"layer {index} shares the KV entries of layer {share}, which has none of its shape")

    @property
    def shared(self) -> frozenset[int]:
        """Layers whose KV entries others attend to, too."""
        return frozenset(layer.share for layer in self.layers if layer.share is not None)

    @property
    def hidden(self) -> int:
        """Values of a hidden state."""
        return self.embed.inputs

    @property
    def vocab(self) -> int:
        """Size of the vocabulary."""
        return sum(self.embed.outputs)

    @property
    def tied(self) -> bool:
        """True where the head is the table of embeddings."""
        return self.head == self.embed

    @property
    def matrices(self) -> Iterator[Matrix]:
        """The matrices of the layers, in their order."""
        return (matrix for layer in self.layers for matrix in layer.products)

    @property
    def forms(self) -> Iterator[tuple[Matrix, int]]:
        """The matrices of the layers with their numbers, as in `Layer.forms`."""
        return (form for layer in self.layers for form in layer.forms)

    @property
    def ropes(self) -> list[Rope | None]:
        """The distinct rotary embeddings, in the order of the layers."""
        return list(dict.fromkeys(mixer.rope for mixer in self.attentions))

    @property
    def attentions(self) -> list[Attention]:
        """The mixers that are attention, in the order of the layers."""
        return [layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention)]

    @property
    def recurrent(self) -> list[Delta]:
        """The mixers with recurrent states, in the order of the layers."""
        return [layer.mixer for layer in self.layers if isinstance(layer.mixer, Delta)]

    @property
    def deepest(self) -> int:
        """Values of the largest attention head."""
        return max((mixer.head_dim for mixer in self.attentions), default=0)

    @property
    def entry(self) -> int:
        """Values of a token's entries in the caches of all layers."""
        return sum(layer.mixer.entry for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Values of all matrices, biases and norms, a tied head counted once."""
        outer = self.embed.parameters + self.norm.size + (0 if self.tied else self.head.parameters)
        outer += self.per_layer.parameters if self.per_layer else 0
        return sum(layer.parameters for layer in self.layers) + outer

"""Layers, and a whole decoder."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.recipe.feeds import Experts, Gated
from specchat.engine.recipe.mixers import Attention, Delta, ShortConv
from specchat.engine.recipe.parts import Matrix, Norm, Rope


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
        pad: the token whose row those of pictures have.
    """

    table: Matrix
    project: Matrix
    norm: Norm
    scale: float
    pad: int

    def row(self, token: int) -> int:
        """Index of the row of a token; those beyond the table have its last one."""
        return self.pad if token >= FIRST else min(token, self.table.outputs[0] - 1)

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
    """x += residual * post_mixer(mixer(pre_mixer(x))), then the same of `feed`, if any; a norm may be missing.

    Attributes:
        input: what is added after both halves, where one was not skipped; None: nothing.
        scalar: name of the tensor [1] that x is multiplied by at the end, where a half was not skipped; empty: none.
        parallel: both halves have the same inputs, pre_mixer(x), and `pre_feed` is missing (Wang and Komatsuzaki 2021).
    """

    mixer: Attention | ShortConv | Delta
    feed: Gated | Experts | None
    pre_mixer: Norm | None
    pre_feed: Norm | None
    post_mixer: Norm | None = None
    post_feed: Norm | None = None
    residual: float = 1.0
    input: LayerInput | None = None
    scalar: str = ""
    parallel: bool = False

    @property
    def attention(self) -> Attention:
        """The mixer of a layer that is known to have attention."""
        assert isinstance(self.mixer, Attention)
        return self.mixer

    @property
    def share(self) -> int | None:
        """The layer before this one whose KV entries are attended to; None: no other's."""
        return self.mixer.share if isinstance(self.mixer, Attention) else None

    def moved(self, places: int) -> "Layer":
        """The layer in a model without the `places` layers before."""
        if self.share is None:
            return self
        return replace(self, mixer=replace(self.attention, share=self.share - places))

    @property
    def gated(self) -> Gated:
        """The MLP, or any one of the experts, of a layer that is known to have one."""
        assert self.feed
        return self.feed.each if isinstance(self.feed, Experts) else self.feed

    @property
    def widths(self) -> set[int]:
        """Values between the products of the MLPs."""
        of = (self.feed.each, self.feed.shared) if isinstance(self.feed, Experts) else (self.feed,)
        return {one.width for one in of if one}

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The matrices: all of a form, then those of the next, in the order of a pass."""
        return tuple(matrix.of(number) for matrix, count in self.forms for number in range(count))

    @property
    def forms(self) -> tuple[tuple[Matrix, int], ...]:
        """Forms of matrices and how many there are of each: one stands for those of all experts."""
        feed, mixer = self.feed, self.mixer
        of_mlp = ((feed.gate_up, 1), (feed.down, 1)) if isinstance(feed, Gated) else ()
        of_feed = feed.forms if isinstance(feed, Experts) else of_mlp
        last: tuple[Matrix, ...] = (mixer.gates,) if isinstance(mixer, Delta) and mixer.gates else ()
        if isinstance(mixer, Attention) and mixer.latent:
            last = mixer.latent.products
        of_input = (self.input.gate, self.input.down) if self.input else ()
        return *((matrix, 1) for matrix in mixer.products), *of_feed, *((matrix, 1) for matrix in (*last, *of_input))

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The norms of the layer."""
        return *self.inner_norms, *self.post_norms

    @property
    def inner_norms(self) -> tuple[Norm, ...]:
        """The norms before the halves, in them and at the end of the layer."""
        apart = self.feed.apart.all if isinstance(self.feed, Experts) and self.feed.apart else ()
        own = self.input.norm if self.input else None
        every = self.pre_mixer, *self.mixer.norms, self.pre_feed, *apart, own
        return tuple(norm for norm in every if norm is not None)

    @property
    def post_norms(self) -> tuple[Norm, ...]:
        """The norms after the halves."""
        return tuple(norm for norm in (self.post_mixer, self.post_feed) if norm is not None)

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors that are neither matrices nor weights of norms, by name."""
        found: dict[str, tuple[int, ...]] = {self.scalar: (1,), **self.mixer.vectors}
        found |= zip(self.gated.curve if self.feed else (), ((1,), (1,), (), ()), strict=False)
        if isinstance(self.feed, Experts):
            found |= {self.feed.factors: (self.feed.count,), self.feed.correction: (self.feed.count,)}
        return {name: shape for name, shape in found.items() if name}

    @property
    def parameters(self) -> int:
        """Values of all matrices, biases and norms."""
        vectors = sum(norm.values for norm in self.norms if norm.name) + sum(map(prod, self.vectors.values()))
        return sum(count * one.parameters for one, count in self.forms) + vectors

    @property
    def active(self) -> int:
        """Parameters that one row reads: of the experts, only those chosen."""
        feed = self.feed
        if not isinstance(feed, Experts):
            return self.parameters
        return self.parameters - (feed.count - feed.top) * (feed.each.gate_up.parameters + feed.each.down.parameters)


@dataclass(frozen=True)
class Recipe:
    """A decoder: embeddings by `embed`, the layers, the last norm, and logits by `head`.

    A tied model's head is its table of embeddings. Embeddings are multiplied by `embed_scale`, and those with an
    `embed_eps` go through a norm without a weight. Logits are multiplied by `logit_scale`. With a `cap` logits x are
    cap * tanh(x / cap) (Gemma 2, Gemma team 2024).
    """

    layers: tuple[Layer, ...]
    embed: Matrix
    norm: Norm
    head: Matrix
    embed_scale: float = 1.0
    embed_eps: float | None = None
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
            alike = isinstance(other, Attention) and _entry_shape(other) == _entry_shape(of)
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
    def cached(self) -> list[Attention | ShortConv]:
        """The mixers with KV entries or what is held as such, in the order of the layers."""
        return [layer.mixer for layer in self.layers if not isinstance(layer.mixer, Delta)]

    def with_int8_cache(self) -> "Recipe":
        """The model with KV entries of attention in int8; convolutions and recurrent states stay as they are."""
        return self._with_each(lambda mixer: replace(mixer, int8_cache=True))

    def with_pictures(self, tokens: int) -> "Recipe":
        """The model with pictures of `tokens` at most, where their tokens attend to each other."""
        return self._with_each(lambda mixer: replace(mixer, mutual=tokens if mixer.mutual else 0))

    def _with_each(self, change: Callable[[Attention], Attention]) -> "Recipe":
        """The model with each mixer of attention changed."""
        changed = (
            replace(layer, mixer=change(layer.mixer)) if isinstance(layer.mixer, Attention) else layer
            for layer in self.layers
        )
        return replace(self, layers=tuple(changed))

    @property
    def recurrent(self) -> list[Delta]:
        """The mixers with recurrent states, in the order of the layers."""
        return [layer.mixer for layer in self.layers if isinstance(layer.mixer, Delta)]

    @property
    def mixtures(self) -> list[Experts]:
        """The feeds that are mixtures of experts, in the order of the layers."""
        return [layer.feed for layer in self.layers if isinstance(layer.feed, Experts)]

    def joined(self, first: int = 0) -> dict[Matrix, Matrix]:
        """`Experts.joined` of the mixtures from `first` on."""
        return {one: more for of in self.mixtures[first:] for one, more in of.joined.items()}

    @property
    def deepest(self) -> int:
        """Values of the largest attention head."""
        return max((mixer.head_dim for mixer in self.attentions), default=0)

    @property
    def tables(self) -> int:
        """Values of the embeddings and the head, which is counted once if tied."""
        return self.embed.parameters + (0 if self.tied else self.head.parameters)

    @property
    def parameters(self) -> int:
        """Values of all matrices, biases and norms, a tied head counted once."""
        outer = self.tables + self.norm.values
        outer += self.per_layer.parameters if self.per_layer else 0
        return sum(layer.parameters for layer in self.layers) + outer


def _entry_shape(of: Attention) -> tuple[int, int, bool]:
    """Common facts of layers that share KV entries."""
    return of.kv_heads, of.head_dim, of.int8_cache

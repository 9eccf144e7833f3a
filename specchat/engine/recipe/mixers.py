"""Mixers of a token with those before it: attention, short convolutions, and recurrent states."""

from dataclasses import dataclass

from specchat.engine.recipe.parts import Matrix, Norm, Rope

LENGTH_EPS = 1e-6
"""Added to the squared lengths of queries and keys of `Delta`."""
KV_BLOCK = 32
"""Most values of a key or value that share a scale in an int8 cache."""


@dataclass(frozen=True)
class Latent:
    """Latent attention (DeepSeek 2024): queries, keys and values of heads are products of smaller normed vectors.

    The layer's first product gives the latent of the queries, that of keys and values, and a part of the keys that is
    rotated and the same in all heads. Queries, too, have a rotated part, after the other.

    Attributes:
        query: queries of their latent; None: the first product gives queries.
        query_norm: of their latent.
        key_value: keys without the rotated part, and values, of their latent.
        key_value_norm: of their latent.
        interleaved: rotated values are neighbours' pairs.
    """

    query: Matrix | None
    query_norm: Norm | None
    key_value: Matrix
    key_value_norm: Norm
    interleaved: bool = True

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The products of latents."""
        return (self.key_value,) if self.query is None else (self.query, self.key_value)

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The norms of latents."""
        return tuple(norm for norm in (self.query_norm, self.key_value_norm) if norm)


@dataclass(frozen=True)
class Attention:
    """Attention of `heads` query heads, groups of which share one of `kv_heads` keys and values.

    Attributes:
        qkv: queries, keys and values, concatenated.
        scale: factor on the scores before their softmax.
        rope: rotation of queries and keys; None: not rotated.
        query_norm, key_norm: before the rotation, over each head or over all heads together (see `Norm.size`).
        value_norm: over each head.
        late_norms: the norms of queries and keys, each over a head, come after the rotation.
        temper: (beta, length): queries at position p are multiplied by 1 + beta * ln(1 + floor(p / length)), as in
            Llama 4 and Ministral 3; beta 0: by 1.
        sinks: name of the tensor [heads] of scores, scaled already, that a value of zeros has beside the others
            (Xiao et al. 2023); empty: none.
        gated: each query in `qkv` is followed by a gate of its size, whose sigmoid its head's output is multiplied by.
        score_cap: scaled scores x are score_cap * tanh(x / score_cap) (Gemma team 2024); 0: as they are.
        window: positions that a token attends to, including its own; 0: all.
        causal: a token attends to none after it; else to all of its pass, as in heads that draft a block at once.
        mutual: most tokens of a picture, which attend to all of it; a window begins where it does for one token.
        latent: products between the first one, `qkv`, and queries, keys and values; None: `qkv` gives these.
        value_dim: values of a value, the others of a head are 0; None: all of them.
        share: the layer before this one whose KV entries are attended to; `qkv` holds queries alone. None: its own.
        int8_cache: KV entries are int8 values in blocks with a float32 scale each; else they have full precision.
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
    late_norms: bool = False
    temper: tuple[float, float] = (0.0, 1.0)
    sinks: str = ""
    gated: bool = False
    score_cap: float = 0.0
    window: int = 0
    causal: bool = True
    mutual: int = 0
    latent: Latent | None = None
    value_dim: int | None = None
    share: int | None = None
    int8_cache: bool = False

    @property
    def key_value(self) -> Matrix:
        """Keys and values alone, of tokens that ask nothing."""
        parts = len(self.qkv.outputs)
        return self.qkv.only(parts - 2, parts)

    @property
    def rotary_dim(self) -> int:
        """Values of a head that are rotated; all of them without a rope, whose rotation is the identity."""
        return self.rope.width if self.rope else self.head_dim

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The products before and after attention."""
        return self.qkv, self.out

    @property
    def norms(self) -> tuple[Norm | None, ...]:
        """The norms of heads and latents."""
        return self.query_norm, self.key_norm, self.value_norm, *(self.latent.norms if self.latent else ())

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors that are neither matrices nor weights of norms, by name."""
        return {self.sinks: (self.heads,)}

    @property
    def entry(self) -> int:
        """Values of a KV entry: a key and a value of each key-value head; none where another layer's is attended to."""
        return 2 * self.kv_heads * self.head_dim if self.share is None else 0

    @property
    def block(self) -> int:
        """Values that share a scale: the greatest power of 2 up to KV_BLOCK that divides `head_dim`; 0: no scales."""
        return min(KV_BLOCK, self.head_dim & -self.head_dim) if self.int8_cache else 0

    def entry_bytes(self, width: int) -> int:
        """Bytes of a KV entry with its scales; full precision has `width` bytes a value."""
        return self.entry + 4 * self.entry // self.block if self.int8_cache else width * self.entry


@dataclass(frozen=True)
class ShortConv:
    """A gated short convolution (Liquid AI 2025): with B, C and z of each token, out(C * convolution(B * z)).

    The convolution is causal, of each channel alone over `taps` tokens. B * z of a token is held as a KV entry of a
    layer whose window is `taps`: the first half of the channels as a key, the others as a value, of one head.

    Attributes:
        mix: B, C and z, concatenated.
        convolution: name of the tensor [channels, 1, taps]; the last tap is of the token itself.
    """

    taps: int
    mix: Matrix
    out: Matrix
    convolution: str

    kv_heads = 1
    share = None
    block = 0
    mutual = 0

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.out.inputs

    @property
    def head_dim(self) -> int:
        """Values of the key, and of the value, of an entry."""
        return self.channels // 2

    @property
    def window(self) -> int:
        """Positions that a token sees, including its own."""
        return self.taps

    @property
    def products(self) -> tuple[Matrix, ...]:
        """The products before and after the convolution."""
        return self.mix, self.out

    @property
    def norms(self) -> tuple[Norm | None, ...]:
        """None of its own."""
        return ()

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors that are neither matrices nor weights of norms, by name."""
        return {self.convolution: (self.channels, 1, self.taps)}

    @property
    def entry(self) -> int:
        """Values of a token's entry."""
        return self.channels

    def entry_bytes(self, width: int) -> int:
        """Bytes of a token's entry, of `width` bytes a value."""
        return width * self.entry


@dataclass(frozen=True)
class Selective:
    """The change of states of Mamba 2 (Dao and Gu 2024), in the place of the delta rule.

    With dt = softplus(a + shift), g = e^(-e^decay dt) and values, keys and queries of any length a token computes

        S = g S + k (dt v)^T,  y = S^T q + skip v

    and the layer's output is out(weight norm(y silu(z))), the norm being over the value heads of each key head.

    Attributes:
        skip: name of a tensor [value_heads].
        weight: name of a tensor [value_heads * value_dim].
        conv_bias: name of the tensor [channels] that is added by the convolution; empty: none.
    """

    skip: str
    weight: str
    conv_bias: str = ""


@dataclass(frozen=True)
class Delta:
    """Gated DeltaNet (Yang et al. 2025): each value head has a matrix S [key_dim, value_dim] in place of KV entries.

    Queries, keys and values go through a causal convolution of each channel over `taps` tokens, then silu. With queries
    and keys of length 1, beta = sigmoid(b) and g = e^(-e^decay softplus(a + shift)) a token computes (equation 10)

        S = g S,  u = beta (v - S^T k),  S = S + k u^T,  y = S^T q / sqrt(key_dim)

    and the layer's output is out(norm(y) silu(z)). As many value heads in a row share a query and key head.

    Attributes:
        mix: queries, keys, values and z, concatenated; with `selective` z, values, keys, queries and a.
        gates: b and a of each value head, concatenated; None with `selective`.
        convolution: name of the tensor [channels, 1, taps]; the last tap is of the token itself.
        decay, shift: names of tensors [value_heads].
        norm: of each value head.
        selective: another change of states, and what belongs to it; None: that of above.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    mix: Matrix
    gates: Matrix | None
    out: Matrix
    norm: Norm
    convolution: str
    decay: str
    shift: str
    selective: Selective | None = None

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Queries, keys and values among the channels: the first, and how many."""
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        first = (values + keys, values, 0) if self.selective else (0, keys, 2 * keys)
        return tuple(zip(first, (keys, keys, values), strict=True))

    @property
    def begins(self) -> tuple[int, int]:
        """Values of a row of the first product before the channels and before z."""
        return (self.value_heads * self.value_dim, 0) if self.selective else (0, self.channels)

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
        """The norm of value heads; none of `Selective`, which has a weight beside it."""
        return () if self.selective else (self.norm,)

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors that are neither matrices nor weights of norms, by name."""
        heads, of = (self.value_heads,), self.selective
        found = {self.convolution: (self.channels, 1, self.taps), self.decay: heads, self.shift: heads}
        values = self.value_heads * self.value_dim
        return found | ({of.skip: heads, of.weight: (values,), of.conv_bias: (self.channels,)} if of else {})

    @property
    def entry(self) -> int:
        """Values of a token's entry in the log of states: k, u and g of all heads, and inputs of the convolution."""
        return self.key_heads * self.key_dim + self.value_heads * (self.value_dim + 1) + self.channels

    @property
    def state(self) -> int:
        """Values of the matrices S."""
        return self.value_heads * self.key_dim * self.value_dim

"""What a model is made of: the matrices and norms, their names in a checkpoint, their shapes, and how they go together.

The names are those of the Llama family in transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from specchat.engine.model.config import ModelConfig

EMBEDDING, LAST_NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"
"""Tables [vocab, hidden] before and after the layers, and the norm [hidden] between; a tied model has no head."""


@dataclass(frozen=True)
class Matrix:
    """A product of one or more stored matrices of the same inputs, one after another along the outputs.

    `names` are without ".weight" and ".bias"; with `bias` each has one, [outputs].
    """

    names: tuple[str, ...]
    outputs: tuple[int, ...]
    inputs: int
    bias: bool

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """(name, outputs) of each stored matrix."""
        return tuple(zip(self.names, self.outputs, strict=True))


@dataclass(frozen=True)
class Norm:
    """The weights of an RMS norm; `name` is without ".weight"."""

    name: str
    size: int


P = TypeVar("P")
P2 = TypeVar("P2")
N = TypeVar("N")
N2 = TypeVar("N2")


@dataclass(frozen=True)
class Block(Generic[P, N]):
    """A transformer block of products P and norms N; q, k, v and gate, up are one product each."""

    attention_norm: N
    qkv: P
    query_norm: N | None
    key_norm: N | None
    out: P
    mlp_norm: N
    gate_up: P
    down: P

    @property
    def products(self) -> tuple[P, P, P, P]:
        """In the order in which a pass multiplies by them."""
        return self.qkv, self.out, self.gate_up, self.down

    @property
    def norms(self) -> tuple[N, ...]:
        """Those of the rows, then those of the heads where there are some."""
        of_heads = [norm for norm in (self.query_norm, self.key_norm) if norm is not None]
        return self.attention_norm, self.mlp_norm, *of_heads

    def made(self, product: Callable[[P], P2], norm: Callable[[N], N2]) -> "Block[P2, N2]":
        """The block with each of its parts made into something else, in the order of the fields."""
        return Block(
            attention_norm=norm(self.attention_norm),
            qkv=product(self.qkv),
            query_norm=None if self.query_norm is None else norm(self.query_norm),
            key_norm=None if self.key_norm is None else norm(self.key_norm),
            out=product(self.out),
            mlp_norm=norm(self.mlp_norm),
            gate_up=product(self.gate_up),
            down=product(self.down),
        )


def head_of(c: ModelConfig) -> Matrix:
    """The matrix that gives logits; a tied model's is its embedding."""
    return Matrix((EMBEDDING if c.tied else HEAD,), (c.vocab,), c.hidden, bias=False)


def block(c: ModelConfig, layer: int = 0) -> Block[Matrix, Norm]:
    """What a checkpoint of shape `c` holds of layer number `layer`."""
    prefix = f"model.layers.{layer}."
    query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def matrix(names: tuple[str, ...], outputs: tuple[int, ...], inputs: int, bias: bool) -> Matrix:
        return Matrix(tuple(prefix + name for name in names), outputs, inputs, bias)

    def norm(name: str, size: int) -> Norm:
        return Norm(prefix + name, size)

    projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return Block(
        attention_norm=norm("input_layernorm", c.hidden),
        qkv=matrix(projections, (query, key, key), c.hidden, c.qkv_bias),
        query_norm=norm("self_attn.q_norm", c.head_dim) if c.qk_norm else None,
        key_norm=norm("self_attn.k_norm", c.head_dim) if c.qk_norm else None,
        out=matrix(("self_attn.o_proj",), (c.hidden,), query, c.out_bias),
        mlp_norm=norm("post_attention_layernorm", c.hidden),
        gate_up=matrix(("mlp.gate_proj", "mlp.up_proj"), (c.intermediate, c.intermediate), c.hidden, c.mlp_bias),
        down=matrix(("mlp.down_proj",), (c.hidden,), c.intermediate, c.mlp_bias),
    )

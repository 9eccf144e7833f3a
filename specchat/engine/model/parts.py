"""What a model is made of: the matrices and norms, their names in a checkpoint, their shapes, and how they go together.

The names are those of the Llama family in transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from specchat.engine.model.config import ModelConfig
from specchat.engine.recipe import Matrix, Norm

EMBEDDING, LAST_NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"
"""Tables [vocab, hidden] before and after the layers, and the norm [hidden] between; a tied model has no head."""


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


def block(c: ModelConfig, layer: int = 0) -> Block[Matrix, Norm]:
    """What a checkpoint of shape `c` holds of layer number `layer`."""
    of = c.recipe.layers[layer]
    assert of.pre_mixer is not None
    assert of.pre_feed is not None
    return Block(
        attention_norm=of.pre_mixer,
        qkv=of.mixer.qkv,
        query_norm=of.mixer.query_norm,
        key_norm=of.mixer.key_norm,
        out=of.mixer.out,
        mlp_norm=of.pre_feed,
        gate_up=of.feed.gate_up,
        down=of.feed.down,
    )

"""Mixtures of experts, and their keys of config.json."""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from specchat.engine.families.parts.family import gated
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import OR_NONE, Switch
from specchat.engine.foreign import Count as Positive
from specchat.engine.recipe import MOST_EXPERTS, Experts, Matrix

SOME = f"a number of experts from 1 to {MOST_EXPERTS}"
Chosen = Annotated[int, Field(gt=0, le=MOST_EXPERTS, description=SOME)]
MaybeChosen = Annotated[int | None, Field(gt=0, le=MOST_EXPERTS, description=SOME)]
Count = Annotated[int | None, Field(ge=0, le=MOST_EXPERTS, description=f"a number of experts up to {MOST_EXPERTS}")]


class ExpertsSettings(Settings):
    """transformers 5 writes num_local_experts for every family, where published files of some have num_experts."""

    USUAL: ClassVar[int]
    """Experts of a layer where no key says."""
    num_experts: Count = None
    num_local_experts: Count = None
    num_experts_per_tok: Chosen

    @property
    def experts(self) -> int:
        """Experts of a layer that has some."""
        named = self.num_local_experts if self.num_experts is None else self.num_experts
        return self.USUAL if named is None else named


class SparseSettings(ExpertsSettings):
    """Keys of families that have experts in some layers alone."""

    norm_topk_prob: Switch = False
    decoder_sparse_step: Positive = 1
    mlp_only_layers: Annotated[list[int] | None, OR_NONE, Field(description="a list of layers")] = None

    def sparse(self, index: int) -> bool:
        """True where layer `index` has experts."""
        named = index in (self.mlp_only_layers or ())
        return not named and self.experts > 0 and (index + 1) % self.decoder_sparse_step == 0


def mixture(
    c: ExpertsSettings, prefix: str, width: int, *, renormalised: bool, bias: bool = False, act: str = ""
) -> Experts:
    """The experts of a layer, of `width` values each; `prefix` begins the names of their tensors and of the router's.

    With `bias` these have biases, and the router is called so.

    Raises:
        ValueError: a token is to have more experts than there are.
        Unsupported: their activation is unknown.
    """
    count = c.experts
    if c.num_experts_per_tok > count:
        raise ValueError(f"num_experts_per_tok is {c.num_experts_per_tok}, and a layer has {count} experts")
    return Experts(
        router=Matrix((f"{prefix}.{'router' if bias else 'gate'}",), (count,), c.hidden_size, bias, dense=True),
        each=gated(c, f"{prefix}.experts.{{}}", bias=bias, act=act, width=width),
        count=count,
        top=c.num_experts_per_tok,
        renormalised=renormalised,
    )


def with_shared(c: Settings, prefix: str, experts: Experts, width: int) -> Experts:
    """`experts` beside a gated MLP of `width` values that a sigmoid weighs; `prefix` begins its tensors' names."""
    gate = Matrix((f"{prefix}.shared_expert_gate",), (1,), c.hidden_size, dense=True)
    return replace(experts, shared=gated(c, f"{prefix}.shared_expert", width=width), shared_gate=gate)

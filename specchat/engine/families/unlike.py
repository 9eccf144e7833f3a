"""Layers of full attention with heads of their own, in the names of Gemma 4 and of transformers' saved files."""

from typing import Annotated

from pydantic import Field

from specchat.engine.families.family import FULL
from specchat.engine.families.settings import Settings
from specchat.engine.foreign import OR_NONE, Foreign, MaybeCount, Switch


class Heads(Foreign):
    """Heads of one layer. None: as in the other layers."""

    head_dim: MaybeCount = None
    num_key_value_heads: MaybeCount = None


class UnlikeSettings(Settings):
    head_dim: MaybeCount = 256
    global_head_dim: MaybeCount = 512
    num_global_key_value_heads: MaybeCount = None
    attention_k_eq_v: Switch = False
    """Values of full attention are its keys before their norm."""
    per_layer_config: Annotated[
        dict[str, Heads] | None, OR_NONE, Field(description="an object with objects of some layers' heads")
    ] = None

    def of_layer(self, index: int, kind: str) -> "UnlikeSettings":
        """The settings with the heads of layer `index`, whose attention is of a kind."""
        if self.per_layer_config is not None:
            own = self.per_layer_config.get(str(index), Heads())
        else:
            kv_heads = self.num_global_key_value_heads if self.attention_k_eq_v else None
            own = Heads(head_dim=self.global_head_dim, num_key_value_heads=kv_heads) if kind == FULL else Heads()
        return self.model_copy(update=own.model_dump(exclude_none=True))

"""Qwen2, Qwen2.5, MiMo: Llama's layers with biases of queries, keys and values; some of them with a window.

The text parts of Qwen2-VL and Qwen2.5-VL are the same.
"""

from specchat.engine.families.parts.family import Family, block, decoder, kinds, within
from specchat.engine.families.parts.settings import Settings, Theta
from specchat.engine.foreign import MaybeCount, Number
from specchat.engine.recipe import Layer, Recipe


class QwenSettings(Settings):
    max_window_layers: MaybeCount = 28
    """First layers without a window."""

    @property
    def kinds(self) -> list[str]:
        """The kind of attention of each layer."""
        return kinds(self, lambda index: bool(self.window) and index >= (self.max_window_layers or 0))


class Qwen2VLSettings(QwenSettings):
    """Published files leave out what is as here."""

    num_key_value_heads: MaybeCount = 8
    sliding_window: MaybeCount = 4096
    max_window_layers: MaybeCount = 80
    rms_norm_eps: Number = 1e-5
    rope_theta: Theta = 1e6


def recipe(c: QwenSettings) -> Recipe:
    of = c.kinds

    def layer(index: int, prefix: str) -> Layer:
        return within(c.window, block(c, prefix, qkv_bias=True, mlp_bias=c.mlp_bias), of[index])

    return decoder(c, layer)


FAMILY = Family("qwen2", "Qwen2", recipe, QwenSettings)
MIMO = Family("mimo", "MiMo", recipe, QwenSettings, mtp="model.mtp_layers.")
VL = Family("qwen2_vl_text", "Qwen2-VL", recipe, Qwen2VLSettings, also_seeing=("qwen2_vl",))
VL_2_5 = Family("qwen2_5_vl_text", "Qwen2.5-VL", recipe, Qwen2VLSettings, also_seeing=("qwen2_5_vl",))

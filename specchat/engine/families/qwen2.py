"""Qwen2, Qwen2.5 and MiMo: Llama's layers with biases of queries, keys and values; some of them with a window."""

from specchat.engine.families.parts.family import Family, block, decoder, kinds, within
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount
from specchat.engine.recipe import Layer, Recipe


class QwenSettings(Settings):
    max_window_layers: MaybeCount = 28
    """First layers without a window."""

    @property
    def kinds(self) -> list[str]:
        """The kind of attention of each layer."""
        return kinds(self, lambda index: bool(self.window) and index >= (self.max_window_layers or 0))


def recipe(c: QwenSettings) -> Recipe:
    of = c.kinds

    def layer(index: int, prefix: str) -> Layer:
        return within(c.window, block(c, prefix, qkv_bias=True, mlp_bias=c.mlp_bias), of[index])

    return decoder(c, layer)


FAMILY = Family("qwen2", "Qwen2", recipe, QwenSettings)
MIMO = Family("mimo", "MiMo", recipe, QwenSettings, mtp="model.mtp_layers.")

"""Inputs of each layer by token, and layers that share KV entries, in the names of Gemma 4's E models."""

from dataclasses import replace

from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Switch
from specchat.engine.recipe import Attention, Layer, LayerInput, Matrix, Norm, PerLayer, Recipe

HALF = 2**-0.5
"""The factor on the sum of a token's row and the product."""


class PerLayerSettings(Settings):
    hidden_size_per_layer_input: MaybeCount = 256
    vocab_size_per_layer_input: MaybeCount = 262_144
    num_kv_shared_layers: MaybeCount = None
    pad_token_id: MaybeCount = 0
    """Has the rows of pictures' tokens."""
    use_double_wide_mlp: Switch = False
    """Layers that share KV entries have MLPs twice as wide."""

    @property
    def owning(self) -> int:
        """First layers, which have KV entries of their own."""
        return self.num_hidden_layers - (self.num_kv_shared_layers or 0)


def shared(c: PerLayerSettings, index: int, kinds: list[str], mixer: Attention) -> Attention:
    """The attention of layer `index`, which may be to the entries of the last layer of its kind that has its own.

    Raises:
        ValueError: there is no such layer before it.
    """
    if index < c.owning:
        return mixer
    own = [place for place, kind in enumerate(kinds[: max(0, c.owning)]) if kind == kinds[index]]
    if not own:
        many = f"num_kv_shared_layers is {c.num_kv_shared_layers} of {c.num_hidden_layers}"
        raise ValueError(f"{many}, and no layer of {kinds[index]} before them has KV entries")
    return replace(mixer, qkv=mixer.qkv.only(0, 1), key_norm=None, value_norm=None, share=own[-1])


def with_input(c: PerLayerSettings, prefix: str, layer: Layer) -> Layer:
    """`layer` with inputs of its own, if `c` asks for them; `prefix` begins the names of its tensors."""
    size, hidden = c.hidden_size_per_layer_input, c.hidden_size
    if not size:
        return layer
    gate = Matrix((f"{prefix}.per_layer_input_gate",), (size,), hidden)
    down = Matrix((f"{prefix}.per_layer_projection",), (hidden,), size)
    norm = Norm(f"{prefix}.post_per_layer_input_norm", hidden, c.rms_norm_eps)
    return replace(layer, input=LayerInput(gate, down, norm))


def with_inputs(c: PerLayerSettings, made: Recipe) -> Recipe:
    """`made` with the inputs of all its layers, if `c` asks for them.

    Raises:
        ValueError: they are of no token.
    """
    size, hidden, rows = c.hidden_size_per_layer_input, c.hidden_size, c.vocab_size_per_layer_input
    if not size:
        return made
    if not rows:
        raise ValueError(f"hidden_size_per_layer_input is {size}, and vocab_size_per_layer_input is missing")
    width = size * c.num_hidden_layers
    # The product is divided by sqrt(hidden) before its norm, which equals hidden times the eps.
    norm = Norm("model.per_layer_projection_norm", size, hidden * c.rms_norm_eps, factor=HALF)
    project = Matrix(("model.per_layer_model_projection",), (width,), hidden, dense=True)
    table = Matrix(("model.embed_tokens_per_layer",), (rows,), width)
    return replace(made, per_layer=PerLayer(table, project, norm, HALF * size**0.5, c.pad_token_id or 0))

"""The form of the rows that the matrices of a model multiply: what a pair asks, or the model's default."""

from collections.abc import Collection

from specchat.engine.errors import ModelError
from specchat.engine.formats.format import Format
from specchat.engine.protocol.pair import Activations, ModelSource, PairSpec


def activations_of(
    pair: PairSpec, source: ModelSource, formats: Collection[Format], on_cpu: bool = True, drafts: bool = False
) -> Activations:
    """The form of a model's rows.

    On a CPU the default is int8 for a target in a quantised GGUF file, as llama.cpp rounds rows to 8 bits for every
    quantised type, and for a draft whose matrices take such rows, as a draft never changes the text. Where the pair
    asks for int8, a draft that cannot have it stays float32.

    Args:
        formats: of the model's quantised matrices in memory.
        on_cpu: False for a model on a GPU.
        drafts: True for the draft.

    Raises:
        ModelError: int8 is asked of a model that cannot have it.
    """
    taken = on_cpu and any(one.int8_rows for one in formats)
    asked = source.activations or pair.activations
    if asked == "int8" and not taken:
        if drafts and source.activations is None:
            return "float32"
        raise ModelError(_refusal(source, on_cpu))
    default = taken and (drafts or any(one.quant == "gguf" for one in formats))
    return asked or ("int8" if default else "float32")


def _refusal(source: ModelSource, on_cpu: bool) -> str:
    if not on_cpu:
        return (
            f'{source.label}: activations = "int8" is of a processor, and the GPU runs this model. '
            'Say device = "cpu", or leave activations out.'
        )
    return (
        f'{source.label}: activations = "int8" is for matrices that are quantised to whole numbers (int8, int4, GGUF '
        "types, MXFP4), and this model has none. Quantise it, or leave activations out."
    )

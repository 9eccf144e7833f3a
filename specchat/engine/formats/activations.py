"""Rounding of a model on a CPU: of the rows that its matrices multiply, and of its head, as asked or by default."""

from dataclasses import dataclass

from specchat.engine.errors import ModelError
from specchat.engine.formats import by_quant
from specchat.engine.formats.format import Format
from specchat.engine.protocol.pair import Activations, ModelSource, PairSpec, Quant, QuantisedHead

_TAKING = {
    "int8": "matrices of whole numbers (int8, int4, GGUF types, MXFP4)",
    "bfloat16": "dense matrices",
}
"""The matrices that take rows in each form."""


@dataclass(frozen=True)
class HeldFormats:
    """The formats of a model's matrices in memory.

    Attributes:
        stored: of the checkpoint; None: dense.
        quant: of the layers' matrices; None: as in the checkpoint.
        table: name and inputs of the head.
        on_cpu: False for a model on a GPU.
    """

    stored: Format | None
    quant: Quant | None
    table: tuple[str, int]
    on_cpu: bool = True

    @property
    def dense_head(self) -> bool:
        """True where the checkpoint stores the head dense."""
        name, inputs = self.table
        return self.stored is None or not self.stored.by_name or self.stored.layout(inputs, name) is None

    @property
    def whole(self) -> bool:
        """True if any matrix of the layers takes rows of 8 bits."""
        quantised = None if self.quant is None else by_quant(self.quant)
        return any(one is not None and one.int8_rows for one in (self.stored, quantised))

    def forms(self, head: QuantisedHead | None) -> tuple[Activations, ...]:
        """Forms of rows that any matrix takes, with the head in its own; on a GPU float32 alone."""
        dense = (self.stored is None and self.quant is None) or (self.dense_head and head is None)
        taken: dict[Activations, bool] = {"int8": self.whole or head is not None, "bfloat16": dense}
        return ("float32", *(form for form, takes in taken.items() if takes and self.on_cpu))


@dataclass(frozen=True)
class Rounding:
    """The form of the rows that matrices multiply, and of a dense head; None: as stored."""

    activations: Activations = "float32"
    head: QuantisedHead | None = None


def rounding_of(pair: PairSpec, source: ModelSource, held: HeldFormats, drafts: bool = False) -> Rounding:
    """The rounding of a model.

    On a CPU rows are int8 by default for a target in a quantised GGUF file, as llama.cpp rounds rows to 8 bits for
    every quantised type, and for a draft whose matrices take such rows, as a draft never changes the text. What the
    pair asks, and the draft (`drafts`) cannot have, is left out of it.

    Raises:
        ModelError: the source asks what the model cannot have, or the pair asks it of the target.
    """
    head = source.head or pair.head
    if head and not (held.on_cpu and held.dense_head):
        _refuse(
            source, f'head = "{head}"', held, "for a dense head, and this file has it quantised", drafts, source.head
        )
        head = None
    activations = source.activations or pair.activations
    forms = held.forms(head)
    if activations is not None and activations not in forms:
        reason = f"for {_TAKING[activations]}, and this model has none"
        _refuse(source, f'activations = "{activations}"', held, reason, drafts, source.activations)
        activations = None
    default = "int8" in forms and (drafts or held.quant == "gguf")
    return Rounding(activations or ("int8" if default else "float32"), head)


def _refuse(source: ModelSource, setting: str, held: HeldFormats, reason: str, drafts: bool, own: str | None) -> None:
    """Refuse a setting, unless it is the pair's and not a draft's `own`."""
    if drafts and own is None:
        return
    key = setting.partition(" ")[0]
    if not held.on_cpu:
        reason, advice = "of a processor, and the GPU runs this model", f'Say device = "cpu", or leave {key} out.'
    else:
        advice = f"Leave {key} out."
    raise ModelError(f"{source.label}: {setting} is {reason}. {advice}")

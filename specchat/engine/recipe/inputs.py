"""Inputs of each layer by token, beside the hidden states."""

from dataclasses import dataclass

from specchat.engine.recipe.parts import Matrix, Norm


@dataclass(frozen=True)
class LayerInput:
    """x += norm(down(activation(gate(x)) * p)) with the layer's input p of `PerLayer`; the activation is the MLP's."""

    gate: Matrix
    down: Matrix
    norm: Norm


@dataclass(frozen=True)
class PerLayer:
    """Inputs of each layer by token, beside the hidden states (Gemma 3n, Gemma team 2025): `norm.size` values each.

    Those of all layers are norm(project(x)) + scale * row(token), x being the embedding of the token, with a norm over
    those of each layer.

    Attributes:
        table: the rows, in main memory.
    """

    table: Matrix
    project: Matrix
    norm: Norm
    scale: float

    @property
    def width(self) -> int:
        """Values of a token's inputs of all layers."""
        return sum(self.project.outputs)

    @property
    def parameters(self) -> int:
        """Values of the table, the product and the norm."""
        return self.table.parameters + self.project.parameters + self.norm.size

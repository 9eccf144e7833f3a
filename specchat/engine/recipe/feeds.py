"""MLPs, and mixtures of them: each token goes through them alone."""

from dataclasses import dataclass, replace
from typing import Literal

from specchat.engine.recipe.parts import Matrix, Norm

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu", "relu2", "xielu"]
"""x sigmoid(x), x Phi(x) with Phi by its tanh (Hendrycks and Gimpel 2016), gpt-oss's gate, max(x, 0)^2 (So et al.
2021), or xIELU (Huang and Schlag 2024), as in `Gated.curve`."""


MOST_EXPERTS = 1024
"""No published layer has half of them."""


@dataclass(frozen=True)
class Gated:
    """A gated MLP (Shazeer 2020): down(activation(gate(x)) * up(x)); gate and up are one product.

    Attributes:
        ungated: down(activation(up(x))) instead, and `gate_up` is up alone.
        curve: names of xIELU's tensors p [1], n [1], beta [] and eps []. With s = softplus it is s(p) x^2 + beta x
            where x > 0, and (beta + s(n)) (exp(min(x, eps)) - 1 - x) + beta x elsewhere. Empty: another activation.
    """

    gate_up: Matrix
    down: Matrix
    activation: Activation = "silu"
    ungated: bool = False
    curve: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Values between the products."""
        return self.down.inputs


@dataclass(frozen=True)
class Apart:
    """Norms of a mixture whose router, experts and shared MLP each have their own, all of the layer's x (Gemma 4)."""

    router: Norm
    pre_experts: Norm
    post_experts: Norm
    pre_shared: Norm
    post_shared: Norm

    @property
    def all(self) -> tuple[Norm, ...]:
        """The norms."""
        return self.router, self.pre_experts, self.post_experts, self.pre_shared, self.post_shared


@dataclass(frozen=True)
class Experts:
    """A mixture of experts (Shazeer et al. 2017): `top` of `count` gated MLPs, chosen for each row alone.

    With p = softmax(router(x)) the output is the sum of p[e] times expert e's over the `top` largest p; of equal ones
    those of lower experts. The chosen p are divided by their sum if `renormalised`.

    Attributes:
        router: scores of all experts.
        each: every expert (see `Matrix.of`).
        sigmoid: p is the sigmoid of each score.
        correction: name of the tensor [count] added to p where experts are chosen, and not to their shares (Wang et al.
            2024); empty: none.
        groups: experts in a row make so many groups, and those of the second number of groups alone can be chosen: of
            the groups with the largest sums of their two largest p (DeepSeek 2024).
        factor: on the chosen p, at last.
        factors: name of the tensor [count] that the chosen p are multiplied by, at last; empty: by 1.
        shared: an MLP beside the experts, whose output is added for every row; None: none.
        shared_gate: a score of a row, whose sigmoid multiplies the output of `shared`; None: 1.
        apart: norms of router, experts and `shared` each; None: none, all have the same inputs.
    """

    router: Matrix
    each: Gated
    count: int
    top: int
    renormalised: bool
    sigmoid: bool = False
    correction: str = ""
    groups: tuple[int, int] = (1, 1)
    factor: float = 1.0
    factors: str = ""
    shared: Gated | None = None
    shared_gate: Matrix | None = None
    apart: Apart | None = None

    def expert(self, number: int) -> Gated:
        """Expert `number`, from 0 on."""
        return replace(self.each, gate_up=self.each.gate_up.of(number), down=self.each.down.of(number))

    @property
    def joined(self) -> dict[Matrix, Matrix]:
        """The experts' matrices, each with the matrix of `shared` that follows it where `shared` is one more expert.

        Every row has that expert, and its gate follows the router, neither with a bias. Empty where `shared` has
        another shape, or inputs of its own.
        """
        of, gate = self.shared, self.shared_gate
        if of is None or self.apart or (gate and (gate.bias or self.router.bias)):
            return {}
        pairs = {self.each.gate_up: of.gate_up, self.each.down: of.down}
        alike = all(
            (a.outputs, a.inputs, a.bias, a.dense) == (b.outputs, b.inputs, b.bias, b.dense) for a, b in pairs.items()
        )
        if not alike or of.activation != self.each.activation:
            return {}
        return pairs | ({self.router: gate} if gate else {})

    @property
    def width(self) -> int:
        """Values between the products of a row's experts."""
        return self.top * self.each.width + (self.shared.width if self.shared else 0)

    @property
    def forms(self) -> tuple[tuple[Matrix, int], ...]:
        """The matrices as in `Layer.forms`."""
        beside = (self.shared.gate_up, self.shared.down, self.shared_gate) if self.shared else ()
        of_each = (self.each.gate_up, self.count), (self.each.down, self.count)
        return (self.router, 1), *of_each, *((matrix, 1) for matrix in beside if matrix)

"""Arguments of the compiled passes of a decoder, beside its rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.descriptors import Descriptors
from specchat.engine.cpu.padding import pad_norm, padded_eps
from specchat.engine.cpu.parameters import Floats, Parameters
from specchat.engine.cpu.workspace import PassBuffers
from specchat.engine.model.decoder import NOTHING, AuxHiddenStates, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.weights.config import ModelConfig

KeptStates = tuple[Any, ...]
"""Arguments that keep hidden states on the way of a pass."""


class PassArguments:
    """Arguments of `passes.layers` and `passes.head`; those that need time to make are cached."""

    def __init__(self, config: ModelConfig, parameters: Parameters, space: PassBuffers, layers: Descriptors) -> None:
        self._config, self._parameters, self._space, self._layers = config, parameters, space, layers
        nowhere = np.zeros((0, 0, 0), np.float32)
        self._no_states = np.full(config.layers + 1, -1), nowhere, nowhere
        self._states: dict[range, KeptStates] = {}
        self.all = np.ones((config.layers, 2), np.bool_)
        """The parts of a whole pass."""
        # A factor on the logits equals a factor on the inputs of the head.
        self.head_norm = pad_norm(parameters.last_norm * np.float32(config.recipe.logit_scale))
        self._eps = padded_eps(config.recipe.norm.eps, config.hidden, len(self.head_norm))

    def parts(self, layers: range, skip: Skip) -> NDArray[np.bool_]:
        """Attentions and MLPs that take part, bool [layers, 2]."""
        if skip is NOTHING and len(layers) == self._config.layers:
            return self.all
        parts = np.zeros_like(self.all)
        parts[layers.start : layers.stop] = True
        parts[list(skip.attention - self._config.recipe.shared), 0] = False
        parts[list(skip.mlp), 1] = False
        return parts

    def kept_states(self, recorded: AuxHiddenStates | None, layers: range) -> KeptStates | None:
        """Arguments that keep the `recorded` hidden states before, between and after layers; None to keep none."""
        if recorded is None:
            return None
        if layers not in self._states:
            where = np.full(self._config.layers + 1, -1)
            for index, layer in enumerate(recorded.layers):
                if layers.start <= layer <= layers.stop:
                    where[layer] = index
            self._states[layers] = where, recorded.positions.numpy(), recorded.tree_scratch.numpy()
        return self._states[layers]

    def forget_states(self) -> None:
        """Other hidden states are recorded from here on."""
        self._states.clear()

    def layer_args(
        self, parts: NDArray[np.bool_], layout: Layout | None = None, kept_states: KeptStates | None = None
    ) -> tuple[Any, ...]:
        """Arguments of `passes.layers` after its rows."""
        weights, space = self._parameters, self._space
        if layout is not None and not space.tree_scratch:
            self._layers.use_tree_scratch(space.make_tree_scratch())
        return (
            -1 if layout is None else layout.scratch_row,
            self._layers.integers,
            self._layers.floats,
            weights.kernels,
            weights.extras,
            parts,
            space.wide,
            space.own,
            space.scores,
            0,
            *(self._no_states if kept_states is None else kept_states),
            space.counters,
        )

    def head_args(self, norm: Floats, cap: float, logits: Floats) -> tuple[Any, ...]:
        """Arguments of `passes.head` after its rows."""
        weights, space = self._parameters, self._space
        head = weights.table[-1], weights.kernels, weights.extras
        return *head, norm, self._eps, cap, logits, space.own, space.head_counters

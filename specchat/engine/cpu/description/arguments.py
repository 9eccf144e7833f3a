"""The record of a decoder's passes: fields that need time to make are cached, the others are set before each pass."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.description.buffers import PassBuffers
from specchat.engine.cpu.description.inputs import LayerInputs
from specchat.engine.cpu.description.layers import Floats, Layers, PassSpans
from specchat.engine.cpu.layers.passes import CODES
from specchat.engine.cpu.padding import pad_norm, pad_rows, padded_eps
from specchat.engine.cpu.parameters import Parameters
from specchat.engine.cpu.primitives.records import HEAD, Structure
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.hidden_states import AuxHiddenStates
from specchat.engine.model.tree_layout import Layout
from specchat.engine.weights.config import ModelConfig

AuxFields = Mapping[str, Any]
"""Fields of a pass that keeps hidden states on its way."""


class PassArguments:
    """Record of the passes of a decoder over its layers and its head."""

    def __init__(
        self,
        config: ModelConfig,
        parameters: Parameters,
        space: PassBuffers,
        layers: Layers,
        inputs: LayerInputs | None,
    ) -> None:
        self._config, self._parameters, self._space, self._layers = config, parameters, space, layers
        self.record = space.pass_record()
        self.record.set(inputs=inputs.record if inputs else None, **CODES)
        self._states: dict[range, AuxFields] = {}
        # A factor on the logits equals a factor on the inputs of the head.
        self.head_norm = pad_norm(parameters.last_norm * np.float32(config.recipe.logit_scale))
        self._head = self.head(self.head_norm, config.recipe.cap, space.logits_of(0))

    def parts(self, layers: range, skip: Skip) -> NDArray[np.int64]:
        """Enabled mixers and MLPs, int64 [layers, 2]."""
        if skip is NOTHING and len(layers) == self._config.layers:
            return self._space.all_parts
        parts = np.zeros_like(self._space.all_parts)
        parts[layers.start : layers.stop] = 1
        parts[list(skip.attention - self._config.recipe.shared), 0] = 0
        parts[list(skip.mlp), 1] = 0
        return parts

    def kept_states(self, recorded: AuxHiddenStates | None, layers: range) -> AuxFields:
        """Fields that keep the `recorded` hidden states before, between and after layers; None keeps none."""
        if recorded is None:
            return {"kept": None}
        if layers not in self._states:
            where = np.full(self._config.layers + 1, -1)
            for index, layer in enumerate(recorded.layers):
                if layers.start <= layer <= layers.stop:
                    where[layer] = index
            states, tree = recorded.positions.numpy(), recorded.tree_scratch.numpy()
            sizes = {"states_rows": states.shape[1], "tree_rows": tree.shape[1]}
            self._states[layers] = {"kept": where, "states": states, "tree_states": tree, **sizes}
        return self._states[layers]

    def forget_states(self) -> None:
        """Other hidden states are recorded from here on."""
        self._states.clear()

    def begin(
        self,
        start: int,
        spans: PassSpans,
        parts: NDArray[np.int64],
        layout: Layout | None,
        kept_states: AuxFields,
        scoring: bool,
    ) -> None:
        """Describe a pass over the layers from position `start` on, with `scoring` over the head too."""
        if layout is not None and not self._space.tree_scratch:
            self._layers.use_tree_scratch(self._space.make_tree_scratch())
        self._space.counters[:] = 0
        if scoring:
            self._set_head(self.head_norm, self._config.recipe.cap, spans.rows)
        self.record.set(
            x=self._space.x,
            rows=spans.rows,
            start=start,
            spans=spans.spans,
            span_count=len(spans.spans),
            ancestors=spans.ancestors,
            scratch_row=-1 if layout is None else layout.scratch_row,
            parts=parts,
            layers=self._layers.table,
            head=self._head if scoring else None,
            **kept_states,
        )

    def begin_head(self, hidden: Tensor, norm: Floats, cap: float) -> None:
        """Describe a pass over the head alone for rows of `hidden`, float32 [rows, hidden]."""
        self._space.counters[:] = 0
        self._set_head(norm, cap, len(hidden))
        self.record.set(x=pad_rows(hidden).contiguous().numpy(), rows=len(hidden), layers=None, head=self._head)

    def _set_head(self, norm: Floats, cap: float, rows: int) -> None:
        self._head.set(norm=norm, cap=cap, logits=self._space.logits_of(rows))

    def head(self, norm: Floats, cap: float, logits: Floats) -> Structure:
        """Describe the head with a norm, and its `logits`, float32 [rows, width of the head]."""
        eps = padded_eps(self._config.recipe.norm.eps, self._config.hidden, len(self.head_norm))
        fields = {"matrix": self._parameters.table[-1:].ctypes.data, "norm": norm, "logits": logits}
        return Structure(HEAD, eps=eps, cap=cap, logits_row=logits.shape[1], **fields)

    def chain_pass(self, parts: NDArray[np.int64]) -> Structure:
        """Return the record of passes for chains, over the layers' enabled `parts`."""
        run = self.record.copy()
        run.set(x=self._space.x, parts=parts, layers=self._layers.table, kept=None, scratch_row=-1)
        return run

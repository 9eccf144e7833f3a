"""The record of a decoder's passes: fields that need time to make are cached, the others are set before each pass."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.description.buffers import PassBuffers
from specchat.engine.cpu.description.layers import Layers, PassSpans
from specchat.engine.cpu.description.operations import CPU
from specchat.engine.cpu.description.steps import EITHER, FEED, MIXER, Floats
from specchat.engine.cpu.drafting.chain import Chains
from specchat.engine.cpu.drafting.nested_speculation import LONG_PROPOSAL
from specchat.engine.cpu.layers.passes import HEAD
from specchat.engine.cpu.padding import pad_norm, pad_rows
from specchat.engine.cpu.parameters import Parameters
from specchat.engine.cpu.primitives.records import Structure
from specchat.engine.model.aux_states import AuxHiddenStates
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.program.lower import lower
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
    ) -> None:
        self._config, self._parameters, self._space, self._layers = config, parameters, space, layers
        self.record = space.pass_record()
        self.record.set(steps=layers.steps, step_count=len(layers.steps), head_code=HEAD)
        self._states: dict[range, AuxFields] = {}
        self._skipping = range(config.layers), NOTHING, space.all_parts
        """Layers, what they leave out, and the `parts` of the last pass that ran in part."""
        self._chains: tuple[Skip, Chains] | None = None
        """Drafter of chains, and what its passes leave out."""
        self._head = self._head_of(space.logits_of(0))
        # A norm of equal weights divides each row by its length.
        self._bare = self._head.copy()
        even = pad_norm(np.full(config.hidden, config.recipe.logit_scale, np.float32), config.hidden)
        self._bare.set(norm=even, count=0, bias=None, cap=0.0)

    def parts(self, layers: range, skip: Skip) -> NDArray[np.int64]:
        """The `parts` of a pass over `layers` without those to `skip`."""
        if skip is NOTHING and len(layers) == self._config.layers:
            return self._space.all_parts
        if self._skipping[:2] == (layers, skip):
            return self._skipping[2]
        parts = np.zeros_like(self._space.all_parts)
        parts[layers.start : layers.stop] = 1
        parts[list(skip.attention - self._config.recipe.shared), MIXER] = 0
        parts[list(skip.mlp), FEED] = 0
        np.maximum(parts[:, MIXER], parts[:, FEED], out=parts[:, EITHER])
        parts[-1] = 1
        self._skipping = layers, skip, parts
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
        until: int,
    ) -> None:
        """Describe a pass over the layers from position `start` on, with `scoring` over the head too.

        `until` as in `PassRows`.
        """
        if layout is not None and not self._space.tree_scratch:
            self._layers.use_tree_scratch(self._space.make_tree_scratch())
        self._space.counters[:] = 0
        if scoring:
            self._head.set(logits=self._space.logits_of(spans.rows))
        self.record.set(
            rows=spans.rows,
            start=start,
            until=until,
            spans=spans.spans,
            span_count=len(spans.spans),
            ancestors=spans.ancestors,
            copies=spans.copies,
            scratch_row=-1 if layout is None else layout.scratch_row,
            parts=parts,
            steps=self._layers.steps,
            head=self._head if scoring else None,
            **kept_states,
        )

    def begin_head(self, hidden: Tensor, bare: bool = False) -> None:
        """Describe a pass over the head alone for rows of `hidden`, float32 [rows, hidden].

        A `bare` head divides rows by their lengths instead of the norm, and has no cap.
        """
        space, rows = self._space, len(hidden)
        space.counters[:] = 0
        space.x[:rows] = pad_rows(hidden).numpy()
        head = self._bare if bare else self._head
        head.set(logits=space.logits_of(rows))
        self.record.set(rows=rows, steps=None, head=head)

    def _head_of(self, logits: Floats) -> Structure:
        """Describe the head with its `logits`, float32 [rows, width of the head]."""
        matrix = self._parameters.table[-1:].ctypes.data
        described: Structure = CPU.run(lower(self._config.recipe).head, matrix, self._parameters.last_norm, logits)
        return described

    def chains(self, embed: NDArray[Any], skip: Skip) -> Chains:
        """The drafter of chains without the sub-layers to `skip`; `embed` is the product of the embeddings."""
        if self._chains is None or self._chains[0] is not skip:
            run, space, recipe = self.record.copy(), self._space, self._config.recipe
            parts = self.parts(range(self._config.layers), skip)
            run.set(parts=parts, steps=self._layers.steps, kept=None, copies=None, scratch_row=-1, until=0)
            logits = np.zeros((1 + LONG_PROPOSAL, space.logits.shape[1]), np.float32)
            chains = Chains(
                run,
                self._head_of(logits),
                embed,
                recipe.vocab,
                nested=LONG_PROPOSAL,
                embed_scale=recipe.embed_scale,
                token_ids=space.token_ids,
                x=space.x,
                logits=logits,
            )
            self._chains = skip, chains
        return self._chains[1]

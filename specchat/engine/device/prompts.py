"""Passes that read prompts on a device: captured ones, and those of pictures of more rows than a pass has."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.device.decoder import DeviceDecoder, RowOptions
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.inputs import PassInputs
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.model.mutual import read_picture, stretches
from specchat.engine.model.passes import NOTHING, PassRows, Skip
from specchat.engine.pictures.rows import PictureRows


class PromptPasses:
    """Writes the KV entries of prompts. A picture of more than `block` rows has layers run apart, eagerly."""

    compiled: ClassVar[bool] = False
    aux_states = None
    """Passes record hidden states on their way."""

    def __init__(self, decoder: DeviceDecoder, inputs: PassInputs, name: str, graphs: Graphs) -> None:
        """Initialise; `name` keys the graphs."""
        self.config = decoder.config
        self._decoder, self._inputs, self._name, self._graphs = decoder, inputs, name, graphs
        self._pictures: PictureRows | None = None
        mutual = decoder.buffers.pictures is not None and any(mixer.mutual for mixer in self.config.recipe.attentions)
        self._until = torch.zeros(1, device=decoder.device, dtype=torch.int32) if mutual else None
        """Position up to which the rows of a picture attend to each other."""

    @property
    def block(self) -> int:
        """Rows of a pass at most."""
        return self._decoder.width

    def write(self, tokens: Sequence[int], start: int, pictures: PictureRows | None) -> None:
        """Write the KV entries of up to `block` tokens, or of a picture, from position `start` on."""
        self._pictures = pictures
        for part, mutual in stretches(tokens, pictures):
            some, first = tokens[part], start + part.start
            if not mutual or len(some) <= self.block:
                deep = self._inputs.put(some, first, pictures)
                self._run(len(some), mutual * (first + len(some)), deep)
            else:
                assert pictures is not None
                x = pictures.put(torch.zeros(len(some), self.config.hidden), some).to(self._decoder.device)
                read_picture(self, x, PassRows(some, first), NOTHING)

    def _run(self, count: int, end: int, deep: int) -> None:
        """Run a pass over so many rows, up to position `end` of a picture if they attend to each other, else 0."""
        inputs, many = self._inputs, count > PASS_ROWS or end > 0
        width = self._decoder.width if many else PASS_ROWS
        # The kernel of many rows alone knows of pictures.
        rows = width if self._graphs.captured else max(count, VERIFY_ROWS + 1 if end else 0)
        until = self._until if many else None
        if until is not None:
            until.fill_(end)
        options = RowOptions(inputs.last, until, deep)
        self._graphs.run(
            ("prefill", self._name, width, deep),
            lambda: self._decoder.forward(inputs.tokens, inputs.start, rows, options=options),
        )

    def run_layers(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        """Run layers, as `CachedDecoder.run_layers`; no attention is skipped."""
        inputs, decoder = self._inputs, self._decoder
        inputs.put(rows.tokens, rows.start, self._pictures if decoder.program.inputs else None)
        if self._until is not None:
            self._until.fill_(rows.until)
        # Rows that fill a wide pass leave no entries, which may be there already.
        count = decoder.width if self._graphs.captured else max(len(x), PASS_ROWS + 1)
        of_rows = inputs.tokens, inputs.start, count, inputs.last, self._until
        self._graphs.eagerly(lambda: decoder.run_layers(x, *of_rows, layers, skip.mlp))
        return decoder.buffers.residual[: len(x)].clone()

    def prepare(self) -> None:
        """Launch the passes once, where they are captured."""
        if self._graphs.captured:
            for tokens in (PASS_ROWS + 1, 1):
                for deep in {0, self._inputs.deep}:
                    self._inputs.put([0] * tokens, 0)
                    self._run(tokens, 0, deep)
            if self._until is not None:
                x = torch.zeros(1, self.config.hidden, device=self._decoder.device)
                read_picture(self, x, PassRows([0], 0), NOTHING)

"""A model whose layers lie on two GPUs: hidden states go from one to the other once a pass."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.attention import Placed
from specchat.engine.device.decoder import Branches, DeviceDecoder, RowOptions
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.launches import Launches
from specchat.engine.device.weights import ModelWeights, load
from specchat.engine.kernels.gpu_shapes import PROMPT_ROWS, VERIFY_ROWS
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.memory.need import UNREAD_ROWS, Model
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig


class CopiedRows(NamedTuple):
    """Rows of a pass, and the length of the text after a step, for the GPU of the first layers.

    Attributes:
        tokens, start, last: as in `DeviceDecoder.forward`.
        length, offsets, path: as in `Branches`.
    """

    tokens: Tensor
    start: Tensor
    last: Tensor
    length: Tensor
    offsets: Tensor
    path: Tensor

    @classmethod
    def create(cls, device: torch.device) -> "CopiedRows":
        def zeros(size: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(size, device=device, dtype=dtype)

        of_tree = zeros(VERIFY_ROWS), zeros(VERIFY_ROWS, torch.int64)
        return cls(zeros(PROMPT_ROWS), zeros(1), zeros(1), zeros(1), *of_tree)


class CutDecoder(DeviceDecoder):
    """A model on a device, but for its first layers, which are on another one.

    Each GPU runs its layers in graphs of its own. Copies between them are made outside of graphs: torch has the streams
    of both GPUs wait for one. Passes run all layers, and record no hidden states.
    """

    def __init__(
        self,
        whole: ModelConfig,
        front: DeviceDecoder,
        rest: ModelConfig,
        weights: ModelWeights,
        context: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`front` and `rest` are the model of `ModelConfig.halves`; `weights` are those of `rest`."""
        super().__init__(rest, weights, context, device, dtype)
        self.config, self.rest, self.front = whole, rest, front
        self._rows = CopiedRows.create(front.device)
        self._report: Tensor | None = None
        self.use(Graphs(device, [], captured=False), Graphs(front.device, [], captured=False))

    def use(self, graphs: Graphs, there: Graphs) -> None:
        """Run in bodies of `graphs`, and the first layers in those of `there`, on their GPU."""
        self._graphs, self._there = graphs, there

    @property
    def halves(self) -> tuple[DeviceDecoder, ...]:
        return self.front, self

    def _embed(self, run: Launches, tokens: Tensor) -> None:
        """Have the first layers write the hidden states that the others begin with."""
        assert run.skips is None
        self._graphs.outside(partial(self._run_front, tokens, run.at, run.last))

    def _run_front(self, tokens: Tensor, at: Placed, last: Tensor | None) -> None:
        rows, into, tree = at.rows, self._rows, None
        copied = [(into.tokens, tokens, rows), (into.start, at.start, 1)]
        if last is not None:
            copied.append((into.last, last, 1))
        if at.path is not None:
            copied += (into.length, at.length, 1), (into.offsets, at.offsets, rows), (into.path, at.path, rows)
            tree = Branches(into.length, into.offsets, into.path)
        for one, source, count in copied:
            one[:count].copy_(source[:count], non_blocking=True)
        options = RowOptions(None if last is None else into.last)
        self._there.run(
            (rows, tree is None, last is None),
            partial(self.front.forward, into.tokens, into.start, rows, tree=tree, options=options),
        )
        self.buffers.residual[:rows].copy_(self.front.buffers.residual[:rows], non_blocking=True)

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        assert places is None
        super().keep(state, None)
        self._graphs.outside(partial(self._keep_front, state))

    def _keep_front(self, state: VerifyState) -> None:
        if self._report is None:
            self._report = torch.zeros_like(state.report, device=self.front.device)
        self._report.copy_(state.report, non_blocking=True)
        self._rows.length.copy_(state.length, non_blocking=True)
        there = state._replace(length=self._rows.length, report=self._report)
        self._there.run("keep", partial(self.front.keep, there, None))

    def front_memory(self) -> int:
        """Bytes held on the device of the first layers."""
        return self.front.memory() + sum(one.nbytes for one in self._rows)


def load_model(
    checkpoint: Checkpoint, chosen: Model, context: int, gpus: Mapping[str, torch.device], dtype: torch.dtype
) -> DeviceDecoder:
    """Load a model, or the halves of one that lies on two GPUs, to `gpus` by their places.

    Raises:
        EngineError: as `weights.load`.
    """
    *first, rest = chosen.parts
    device, checkpoint = gpus[rest.place], replace(checkpoint, config=rest.config)
    weights = load(checkpoint, rest.quant, device, dtype, rest.head, rest.experts_in_main, rest.tables_on_gpu)
    built = rest.config, weights, context, device, dtype
    if not first:
        return DeviceDecoder(*built)
    (half,) = first
    of_front = replace(checkpoint, config=half.config, drafts=tuple(range(UNREAD_ROWS)))
    return CutDecoder(chosen.config, load_model(of_front, half, context, gpus, dtype), *built)

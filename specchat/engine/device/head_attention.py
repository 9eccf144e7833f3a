"""Attention of trained heads in captured graphs, by the kernels of the models: it reads the text's entries alone."""

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from specchat.engine.kernels.attention import Scoring, attend
from specchat.engine.kernels.gpu_shapes import SHARING_HEADS, WIDEST_HEAD, attention_splits
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import Workspace, workspace
from specchat.engine.recipe import Attention
from specchat.engine.reference.ops import Attended


def fits(attentions: Iterable[Attention]) -> bool:
    """Return True if the kernels take these shapes."""
    return all(of.heads <= SHARING_HEADS * of.kv_heads and of.head_dim <= WIDEST_HEAD for of in attentions)


class HeadAttention:
    """Attention of a head's layers."""

    def __init__(self, shared: Workspace) -> None:
        """Initialise; the target's buffers `shared` serve all layers that they suffice for."""
        self._workspaces = [shared]

    def along(self, known: Tensor, path: Tensor) -> Attended:
        """Attention of rows that each see the first `known` int64 [1] entries, and further ones by the bits of its
        `path` int64 [rows], as `kernels.attention.attend` reads them."""
        return partial(self._attended, known.to(torch.int32), path, 0)

    def after(self, first: Tensor, rows: int) -> Attended:
        """Attention of rows whose entries are first, first + 1, ..., int64 [1] and below 0 before a short text.

        In a layer that is not causal each sees all of them, and windows are counted from the last.
        """

        @cache  # layers with the same attention share its launches
        def seeing(causal: bool) -> tuple[Tensor, Tensor]:
            last = torch.arange(rows, device=first.device)
            last = last if causal else torch.full_like(last, rows - 1)
            known = first.clamp(min=0)
            last = (first - known + last).clamp(min=0)
            return known.to(torch.int32), torch.bitwise_left_shift(torch.full_like(last, 2), last) - 1

        def attend(of: Attention, *tensors: Any) -> Tensor:
            window = of.window and of.window + (0 if of.causal else rows - 1)
            return self._attended(*seeing(of.causal), window, of, *tensors)

        return attend

    def _attended(
        self,
        known: Tensor,
        path: Tensor,
        window: int,
        of: Attention,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        seen: Tensor | None,
    ) -> Tensor:
        assert seen is None
        rows = query.shape[1]
        asked = query.new_empty(rows, of.heads, of.head_dim, dtype=keys.dtype).copy_(query.transpose(0, 1))
        mixed = asked.new_empty(rows, of.heads * of.head_dim)
        room = self._room(rows, of, attention_splits(keys.shape[1], window, rows), query.device)
        attend(asked, KvEntries(keys, values), RowPlaces(known, path), room, mixed, rows, Scoring(of.scale, window))
        return mixed.view(rows, of.heads, of.head_dim).transpose(0, 1).float()

    def _room(self, rows: int, of: Attention, splits: int, device: torch.device) -> Workspace:
        """Buffers for a pass; its graph keeps them, so none is dropped."""
        for one in self._workspaces:
            held, most, heads, dim = one.mixed.shape
            if held >= splits and most >= rows and heads >= of.heads and dim >= of.head_dim:
                return one
        self._workspaces.append(workspace(rows, of.heads, of.head_dim, splits, device))
        return self._workspaces[-1]

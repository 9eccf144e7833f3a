"""The three positions of each token of a text with pictures (M-RoPE, Qwen2-VL: Wang et al. 2024)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from specchat.engine.pictures.kinds import Grid


def positions(pictures: Iterable[tuple[int, Grid]], length: int) -> Tensor:
    """Time, height and width of the entries of a text, int64 [3, length].

    A feature has the place of its picture as its time, and its row and column from there on. What follows goes on
    behind the longer side. `pictures` are the entry and the grid of each, in order.
    """
    places = torch.arange(length).repeat(3, 1)
    for entry, grid in pictures:
        end, start = entry + grid.cells, int(places[0, entry])
        features = torch.arange(grid.cells)
        places[0, entry:end] = start
        places[1, entry:end] = start + features // grid.columns
        places[2, entry:end] = start + features % grid.columns
        places[:, end:] = start + max(grid.rows, grid.columns) + torch.arange(length - end)
    return places

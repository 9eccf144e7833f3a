"""Flags on the device for what a pass skips."""

import torch
from torch import Tensor

from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.program.ops import Half
from specchat.engine.recipe import Recipe

ALIGNED = 4
"""int32 values between 16-byte boundaries: kernels are compiled once for aligned pointers."""
FLAGS: dict[Half, int] = {"start": 2, "mixer": 0, "feed": 1, "end": 2}


class SkipFlags:
    """Flags int32 [layers, 3, ALIGNED], non-zero skips: of a layer's halves, and of its start and end."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self._flags = torch.zeros(len(recipe.layers), 3, ALIGNED, device=device, dtype=torch.int32)
        self._never = recipe.shared
        """Layers whose attention is not skipped, since others attend to their KV entries."""
        self._skip = NOTHING

    def set(self, skip: Skip) -> None:
        """Copy a skip set to the device; graphs that read these flags follow it from their next replay."""
        if skip == self._skip:  # a copy waits for the device, and a strategy sets its skip set at every step
            return
        chosen = torch.zeros(self._flags.shape, dtype=torch.int32)
        attention = skip.attention - self._never
        for half, layers in enumerate((attention, skip.mlp, attention & skip.mlp)):
            chosen[sorted(layers), half] = 1
        self._flags.copy_(chosen)
        self._skip = skip

    def of(self, layer: int, half: Half) -> Tensor:
        """Return the flag int32 [1] of a half of a layer."""
        return self._flags[layer, FLAGS[half], :1]

"""Everything a forward pass writes, allocated once: captured graphs read and write fixed addresses."""

import torch
from torch import Tensor

from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels.products import splits
from specchat.engine.kernels.workspace import workspace
from specchat.engine.model.config import ModelConfig

PASS_ROWS = 64
"""Rows of the widest forward pass: prefill, or a tree."""
VERIFY_ROWS = 16
"""Rows that get logits: a pending token and a chain of up to 15."""
BLOCK = 64
"""The cache is made in whole blocks of so many slots."""


class Buffers:
    """Activations of one model; `partials` of a product are float32 [splits, PASS_ROWS, outputs]."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        c, layer = config, weights.layers[0]

        def active(*shape: int) -> Tensor:
            return torch.zeros(PASS_ROWS, *shape, device=device, dtype=dtype)

        def partials(rows: int, outputs: int, count: int) -> Tensor:
            return torch.zeros(count, rows, outputs, device=device, dtype=torch.float32)

        self.residual = torch.zeros(PASS_ROWS, c.hidden, device=device, dtype=torch.float32)
        self.x = active(c.hidden)
        self.qkv = partials(PASS_ROWS, (c.heads + 2 * c.kv_heads) * c.head_dim, splits(layer.qkv.weight))
        self.query = active(c.heads, c.head_dim)
        self.mixed = active(c.heads * c.head_dim)
        self.out = partials(PASS_ROWS, c.hidden, splits(layer.out.weight))
        self.gate_up = partials(PASS_ROWS, 2 * c.intermediate, splits(layer.gate_up.weight))
        self.act = active(c.intermediate)
        self.down = partials(PASS_ROWS, c.hidden, splits(layer.down.weight))
        self.logits = partials(VERIFY_ROWS, weights.head.shape[0], splits(weights.head))
        self.whole = None
        """With a draft vocabulary: logits of all tokens, float32 [VERIFY_ROWS, vocab], -inf for those outside it."""
        if weights.tokens is not None:
            self.whole = torch.full((VERIFY_ROWS, c.vocab), float("-inf"), device=device)
        self.offsets = torch.arange(PASS_ROWS, device=device, dtype=torch.int32)
        self.attention = workspace(PASS_ROWS, c.heads, c.head_dim, capacity, device)

    def memory(self) -> int:
        """Bytes held."""
        tensors = [t for t in (*vars(self).values(), *vars(self.attention).values()) if isinstance(t, Tensor)]
        return sum(t.numel() * t.element_size() for t in tensors)

"""DFlash2's convolution over a block, around each half of a layer: a row sees those before it without attention.

With x[i] = 0 before the block, c a channel and g(c) its group, for the input (s = 0) and the output (s = 1) of a half:

    y[i, c] = sum over t of (base[s, t, c] + d[i, s, t, g(c)]) x[i - t, c]

where d = P times the half's input makes a kernel for each row.
"""

from torch import Tensor

from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights


class Convolution:
    """Keys: "base_kernel" [2, taps, hidden] and "kernel_projection.weight" [2 taps groups, hidden]."""

    def __init__(self, weights: Weights, prefix: str, hidden: int, taps: int, group: int) -> None:
        """Read the one whose keys begin with `prefix`; `group` channels share what is made for a row.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._base = weights.get(f"{prefix}base_kernel", 2, taps, hidden)
        self._taps, self._group = taps, group
        made = 2 * taps * (hidden // group)
        self._projection = Linear(weights.get(f"{prefix}kernel_projection.weight", made, hidden), drafting=True)

    def kernels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of a half's input float32 [rows, hidden] the kernels before and after it, float32 [rows, taps, hidden]."""
        made = self._projection(x).view(len(x), 2, self._taps, -1).repeat_interleave(self._group, -1)
        before, after = (self._base + made).unbind(1)
        return before, after

    def memory(self) -> int:
        """Bytes held."""
        return self._projection.memory() + 4 * self._base.numel()


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Rows float32 [rows, hidden] by a kernel float32 [rows, taps, hidden] for each."""
    made = kernel[:, 0] * x
    for back in range(1, kernel.shape[1]):
        made[back:] += kernel[back:, back] * x[:-back]
    return made

"""A trained adapter between the last hidden states of early exit and the head. Full passes never use it.

Between the first layers and the head stands a residual block. As in Kangaroo (Liu et al. 2024) the target is frozen and
only the path to the exit has it; as in Medusa (Cai et al. 2024) the block sees one token. A pass through all layers
never runs it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from specchat.engine.errors import ModelError
from specchat.engine.files import read_json, weight_files
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.weights import Weights

KIND = "specchat-exit-adapter"
EPSILON = 1e-6


@dataclass(frozen=True)
class AdapterFiles:
    """Files of an adapter; `Weights` reads their tensors."""

    folder: Path
    shards: tuple[Path, ...]
    format: None = None
    gguf: None = None


@dataclass(frozen=True)
class ExitAdapter:
    """An adapter after `layer` layers. `down` and `up` are float32 [hidden, hidden]."""

    layer: int
    down: Tensor
    up: Tensor

    @classmethod
    def open(cls, folder: Path, target: ModelConfig) -> "ExitAdapter":
        """Read an adapter for a target.

        Raises:
            ModelError: files missing, damaged, or of another target.
        """
        settings = read_json(folder / "config.json")
        layer, hidden = settings.get("exit_layer"), settings.get("hidden_size")
        if settings.get("model_type") != KIND or not isinstance(layer, int) or layer < 1:
            raise ModelError(f"{folder} holds no adapter for early exit")
        if hidden != target.hidden or layer >= target.layers:
            raise ModelError(
                f"{folder} is an adapter after layer {layer} of a target with {hidden} values in a hidden state; this "
                f"one has {target.layers} layers and {target.hidden}"
            )
        with Weights(AdapterFiles(folder, weight_files(folder))) as weights:
            down, up = (weights.get(name, target.hidden, target.hidden).float() for name in ("down", "up"))
        return cls(layer, down, up)

    def memory(self) -> int:
        """Bytes held."""
        return self.down.nbytes + self.up.nbytes

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return float32 [rows, hidden] that the final norm and the head read."""
        return adapted(hidden, self.down, self.up)


def adapter_bytes(target: ModelConfig) -> int:
    """Bytes that an adapter of `target` takes: two float32 matrices [hidden, hidden]."""
    return 8 * target.hidden**2


def adapted(hidden: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """The block: `hidden` float32 [..., hidden] and what its direction adds, in its own size."""
    size = torch.linalg.vector_norm(hidden, 2.0, [-1], True).mul(hidden.shape[-1] ** -0.5).add(EPSILON)
    return torch.addcmul(hidden, size, linear(silu(linear(hidden / size, down)), up))


def read_adapter(
    folder: str | None, target: ModelConfig, device: torch.device | str = "cpu"
) -> tuple[ExitAdapter | None, str]:
    """The adapter in a folder, if any, on `device`, or the reason why it cannot be used."""
    if folder is None:
        return None, ""
    try:
        with torch.no_grad():
            found = ExitAdapter.open(Path(folder), target)
            return replace(found, down=found.down.to(device), up=found.up.to(device)), ""
    except ModelError as error:
        return None, str(error).rstrip(".")

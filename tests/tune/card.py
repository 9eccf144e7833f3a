"""A GPU that is not there: its tensors say that they are elsewhere, and their values are computed in main memory.

Torch's fake tensors have no values, and where torch is built without CUDA they have no gradients either. With these
whole trainings run, and what they learn can be compared. They are on "meta", which needs no driver.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self, cast
from unittest.mock import patch
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from specchat.engine.device.weights import load
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.target import DeviceTarget

GPU = torch.device("meta")
TENSOR = torch.tensor
ACROSS = ("_to_copy", "copy_")
"""Operations that take tensors of both."""


class OnCard(Tensor):
    """A tensor of the GPU, with the memory `behind` it."""

    behind: Tensor

    @staticmethod
    def __new__(cls, behind: Tensor) -> Self:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls,
            behind.shape,
            strides=behind.stride(),
            storage_offset=behind.storage_offset(),
            dtype=behind.dtype,
            device=GPU,
            requires_grad=behind.requires_grad,
        )

    def __init__(self, behind: Tensor) -> None:
        self.behind = behind

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Card(TorchDispatchMode):
    """Takes what is made for a GPU, or moved there, to one that is not there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation's result, on the GPU where the operation is.

    Raises:
        AssertionError: it takes tensors of both.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there, name = [one for one in tensors if isinstance(one, OnCard)], str(func).removeprefix("aten.")
    if there and not name.startswith(ACROSS):
        mixed = [one for one in tensors if not isinstance(one, OnCard) and one.dim()]
        assert not mixed, f"{name} takes a tensor of main memory beside those of the GPU"
    real, options = tree_map(lambda one: one.behind if isinstance(one, OnCard) else one, (args, kwargs))
    device = options.get("device")
    if device is not None:
        options["device"] = torch.device("cpu")
    made = func(*real, **options)
    on_card = bool(there) if device is None else torch.device(device) == GPU
    if not on_card or (name.startswith("copy_") and not isinstance(args[0], OnCard)):
        return made
    wrapped = tree_map(lambda one: OnCard(one) if isinstance(one, Tensor) else one, made)
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


@contextmanager
def card() -> Iterator[None]:
    """Torch of a machine with a GPU."""

    def tensor(values: Any, *, device: Any = None, **options: Any) -> Tensor:
        """As torch's, which dispatches nothing."""
        made = TENSOR(values, **options)
        return made if device is None else made.to(device)

    with patch.object(torch, "tensor", tensor), catch_warnings(), Card():
        filterwarnings("ignore", message=".*to a meta parameter", category=UserWarning)
        yield


def target_there(checkpoint: Checkpoint, head: Quant | None = None) -> DeviceTarget:
    """A target on the GPU, as its decoder would hold it."""
    weights = load(checkpoint, None, GPU, torch.float32, head)
    return DeviceTarget(checkpoint, cast(Any, SimpleNamespace(device=GPU, decoder=SimpleNamespace(weights=weights))))

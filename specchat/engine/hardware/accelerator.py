"""The GPU that transformers runs on where the kernels cannot: any that this torch supports."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from specchat.engine.hardware.gpu import CHOSEN
from specchat.engine.hardware.gpu_failure import first_line

Kind = Literal["cuda", "xpu", "mps"]
"""Names of torch: "cuda" is also AMD's (ROCm), "xpu" Intel's, "mps" Apple's."""
KINDS: tuple[Kind, ...] = ("cuda", "xpu", "mps")
NAMES: dict[Kind, str] = {"cuda": "the GPU", "xpu": "the Intel GPU", "mps": "the Apple GPU"}


@dataclass(frozen=True)
class Accelerator:
    """A GPU that passed a product; `free` bytes are left, None where torch does not report them."""

    kind: Kind
    name: str
    free: int | None


def find_accelerator(of: Any = torch) -> Accelerator | str:
    """The GPU of torch, tested by a product, or the reason why there is none; `of` stands for torch."""
    found = kind(of)
    if found is None:
        return "torch sees no GPU"
    try:
        # A card may be there and too old for every kernel of this torch.
        one = of.ones(8, 8, device=device_of(found))
        if float((one @ one).sum()) != 512:
            return f"{NAMES[found]} multiplies wrongly"
        return Accelerator(found, _name(of, found), _free(of, found))
    except (RuntimeError, AssertionError) as error:
        return f"{NAMES[found]} fails: {first_line(error)}"


def kind(of: Any = torch) -> Kind | None:
    """The first kind available to torch."""
    for name in KINDS:
        runtime = of.backends.mps if name == "mps" else getattr(of, name, None)
        if runtime is not None and runtime.is_available():
            return name
    return None


def device_of(kind: Kind) -> str:
    """The torch device for a model: of several NVIDIA or AMD GPUs the chosen one."""
    return str(CHOSEN.device) if kind == "cuda" else kind


def _name(of: Any, kind: Kind) -> str:
    return "Apple GPU" if kind == "mps" else str(getattr(of, kind).get_device_name(device_of(kind)))


def _free(of: Any, kind: Kind) -> int | None:
    if kind == "mps":
        return int(of.mps.recommended_max_memory() - of.mps.driver_allocated_memory())
    memory_info = getattr(getattr(of, kind), "mem_get_info", None)
    return None if memory_info is None else int(memory_info(device_of(kind))[0])

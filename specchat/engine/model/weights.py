"""Tensors of a checkpoint: safetensors only, one file or sharded, every shape checked."""

from contextlib import ExitStack
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats import Weight
from specchat.engine.model.stored import Stored, kind_of
from specchat.engine.pair import Quant

HOST = torch.device("cpu")
DENSE = (torch.float32, torch.float16, torch.bfloat16)
TEXT_PARTS = ("model.language_model.", "language_model.model.")
"""Beginnings of names in checkpoints that read images too, where others have "model."."""


class Files(Protocol):
    """The parts of a `Checkpoint` that are read here."""

    @property
    def folder(self) -> Path: ...

    @property
    def quant(self) -> Quant | None: ...

    @property
    def shards(self) -> tuple[Path, ...]: ...


class Weights:
    """A reader of tensors by name; a context manager that keeps the files memory-mapped."""

    def __init__(self, checkpoint: Files, device: torch.device = HOST) -> None:
        """Open the safetensors files; `get` and `integers` return tensors on `device`.

        Raises:
            ModelError: a file is damaged or cut short.
        """
        self.folder = checkpoint.folder
        self.device = device
        self._quant = checkpoint.quant
        self._stack = ExitStack()
        self._home: dict[str, tuple[Path, Any, str]] = {}
        """File, its handle, and the name in it, of each tensor."""
        try:
            for file in checkpoint.shards:
                try:
                    handle = self._stack.enter_context(safe_open(file, framework="pt", device="cpu"))
                except (SafetensorError, OSError) as error:
                    raise ModelError(
                        f"{file} is damaged or cut short ({error}). Download the checkpoint again."
                    ) from None
                self._home.update({name: (file, handle, name) for name in handle.keys()})  # noqa: SIM118
        except BaseException:
            self._stack.close()
            raise
        for beginning in TEXT_PARTS:
            if f"{beginning}embed_tokens.weight" in self._home:
                self._home = {_of_text(name, beginning): home for name, home in self._home.items()}

    def __enter__(self) -> "Weights":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __contains__(self, name: object) -> bool:
        return name in self._home

    def get(self, name: str, *shape: int) -> Tensor:
        """Dense tensor `name` as float32 of exactly `shape`; on another device a matrix as bfloat16, half the bytes.

        Raises:
            ModelError: the tensor is missing, quantised, or has another shape.
        """
        matrix = len(shape) == 2 and self.device.type != "cpu"
        return self._dense(name, *shape).to(torch.bfloat16 if matrix else torch.float32).to(self.device)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of tensor `name`; empty where there is none."""
        return tuple(self._read(name).shape) if name in self else ()

    def count(self, prefix: str = "") -> int:
        """Number of values in all tensors whose names begin with `prefix`."""
        found = (home for name, home in self._home.items() if name.startswith(prefix))
        return sum(prod(handle.get_slice(name).get_shape()) for _, handle, name in found)

    def integers(self, name: str, *shape: int) -> Tensor:
        """Tensor `name` of whole numbers or truth values as int64 of exactly `shape`.

        Raises:
            ModelError: the tensor is missing, of real numbers, or has another shape.
        """
        tensor = self._read(name)
        if tensor.is_floating_point() or tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.folder}: tensor {name} is {tensor.dtype} {list(tensor.shape)}, not whole numbers {list(shape)}."
            )
        return tensor.to(self.device, torch.int64)

    @property
    def quant(self) -> Quant | None:
        """Quantisation by bitsandbytes, whose dense matrices remain dense; None: not quantised."""
        return self._quant

    def linear(self, name: str, outputs: int, inputs: int) -> Weight:
        """Matrix `name` (without ".weight") as it is stored: dense in its own dtype, or quantised by bitsandbytes.

        Raises:
            ModelError: the matrix is missing, of another shape, damaged, or quantised in an unknown way.
        """
        tensor = self._read(f"{name}.weight")
        kind = kind_of(name, self, tensor.dtype)
        if kind is None:
            return self._dense(f"{name}.weight", outputs, inputs)
        if self._quant not in (None, kind):
            raise ModelError(f"{self.folder}: {name}.weight is {kind}, but config.json says {self._quant}.")
        stored = Stored(self._part, self, str(self.folder))
        if kind == "int8":
            return stored.eight_bit(name, outputs, inputs)
        return stored.four_bit(name, kind, outputs, inputs)

    def _dense(self, name: str, *shape: int) -> Tensor:
        tensor = self._read(name)
        if tensor.dtype not in DENSE:
            raise ModelError(
                f"{self.folder}: tensor {name} is {tensor.dtype}, quantised in a way that specchat does not know; it "
                "knows bitsandbytes nf4, fp4 and int8 in the layers. Use the unquantised checkpoint."
            )
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.folder}: tensor {name} has shape {list(tensor.shape)}, config.json asks for {list(shape)}."
            )
        return self._finite(name, tensor)

    def _finite(self, name: str, tensor: Tensor) -> Tensor:
        """`tensor` itself, checked for NaN and infinity, which would spread to every token."""
        if tensor.numel() and tensor.is_floating_point():
            # One pass over memory finds both: a minimum with NaN is NaN.
            least, most = torch.aminmax(tensor)
            if not (least.isfinite() and most.isfinite()):
                raise ModelError(
                    f"{self._home[name][0]}: tensor {name} holds values that are no numbers (NaN or infinity). "
                    "Download the checkpoint again."
                )
        return tensor

    def _read(self, name: str) -> Tensor:
        if name not in self._home:
            raise ModelError(
                f"{self.folder}: tensor {name} is missing from the weights; config.json does not fit them."
            )
        file, handle, stored = self._home[name]
        try:
            tensor: Tensor = handle.get_tensor(stored)
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelError(
                f"{file}: tensor {name} cannot be read ({error}). Download the checkpoint again."
            ) from None
        return tensor

    def _part(self, name: str) -> Tensor:
        """Read a part of a quantised matrix; packed bytes may have any dtype."""
        tensor = self._read(name)
        return tensor if name.endswith(".weight") or tensor.dtype not in DENSE else self._finite(name, tensor)


def _of_text(name: str, beginning: str) -> str:
    """The name that a tensor of the text part has in a checkpoint that reads text alone."""
    if name.startswith(beginning):
        return f"model.{name.removeprefix(beginning)}"
    return name.removeprefix("language_model.")

"""Tensors of a checkpoint: safetensors only, one file or sharded, every shape checked."""

from collections.abc import Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.blocks import SYMMETRIC, IntegerFormat
from specchat.engine.formats.integers import has_integers, integers
from specchat.engine.formats.layout import Weight
from specchat.engine.formats.mxfp4 import mxfp4
from specchat.engine.formats.quantise import dequantised
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Recipe
from specchat.engine.weights.eight_bit_floats import SCALES, STORED, dequantise_floats
from specchat.engine.weights.stacks import (
    Rows,
    are_transposed,
    by_turns,
    check_stacks,
    is_stack,
    of_layer,
    of_turns,
    renamed,
    unstacked,
)
from specchat.engine.weights.stored import Stored, kind_of

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
    def integers(self) -> IntegerFormat | None: ...

    @property
    def shards(self) -> tuple[Path, ...]: ...


class Home(NamedTuple):
    """Where a tensor is: a file, its handle, the name in it, and the rows of one expert in a stack."""

    file: Path
    handle: Any
    name: str
    rows: Rows | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        whole = tuple(self.handle.get_slice(self.name).get_shape())
        return whole if self.rows is None else self.rows.shape(whole)

    def read(self) -> Tensor:
        if self.rows is not None:
            return self.rows.of(self.handle.get_slice(self.name))
        made: Tensor = self.handle.get_tensor(self.name)
        return made


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
        self._integers = checkpoint.integers or SYMMETRIC
        self._stack = ExitStack()
        self._home: dict[str, Home] = {}
        self._stacks: dict[str, int] = {}
        """Experts in each stack of them."""
        try:
            for file in checkpoint.shards:
                try:
                    handle = self._stack.enter_context(safe_open(file, framework="pt", device="cpu"))
                except (SafetensorError, OSError) as error:
                    raise ModelError(
                        f"{file} is damaged or cut short ({error}). Download the checkpoint again."
                    ) from None
                self._home |= {name: Home(file, handle, name) for name in handle.keys()}  # noqa: SIM118
        except BaseException:
            self._stack.close()
            raise
        stored, self._home = self._home, {}
        for home in stored.values():
            self._add(home, stored)
        for beginning in TEXT_PARTS:
            if f"{beginning}embed_tokens.weight" in self._home:
                self._home = {_of_text(name, beginning): home for name, home in self._home.items()}

    def _add(self, home: Home, stored: Mapping[str, Home]) -> None:
        """Add a tensor by our name of it; a stack as the matrices of its experts. `stored` are all in the files."""
        name = renamed(home.name)
        parts: dict[str, Rows] = {}
        end, part = by_turns(name, stored)
        if end:
            parts = dict(of_turns(name, end, part, home.shape))
            self._stacks[name.removesuffix(part)] = next(iter(home.shape), 0)
        elif is_stack(name):
            gate_up, down = (stored[one].shape if one in stored else () for one in of_layer(home.name))
            parts = dict(unstacked(name, home.shape, are_transposed(gate_up, down)))
            self._stacks[name] = next(iter(home.shape), 0)
        self._home |= {part: home._replace(rows=rows) for part, rows in parts.items()} or {name: home}

    def check(self, recipe: Recipe) -> None:
        """Check that stacks of experts hold as many as `recipe` has.

        Raises:
            ModelError: one holds others.
        """
        check_stacks(self._stacks, recipe, self.folder)

    def __enter__(self) -> "Weights":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __contains__(self, name: object) -> bool:
        return name in self._home

    def get(self, name: str, *shape: int) -> Tensor:
        """Tensor `name` as float32 of exactly `shape`; on another device a matrix as bfloat16, half the bytes.

        Raises:
            ModelError: the tensor is missing, quantised by bitsandbytes, or has another shape.
        """
        matrix = len(shape) == 2 and self.device.type != "cpu"
        dtype, module = torch.bfloat16 if matrix else torch.float32, name.removesuffix(".weight")
        if len(shape) == 2 and has_integers(module, self):
            return dequantised(self.linear(module, *shape), dtype).to(self.device)
        return self._dense(name, *shape).to(dtype).to(self.device)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of tensor `name`; empty where there is none."""
        return tuple(self._read(name).shape) if name in self else ()

    def count(self, prefix: str = "") -> int:
        """Number of values in all tensors whose names begin with `prefix`."""
        return sum(prod(home.shape) for name, home in self._home.items() if name.startswith(prefix))

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
        if f"{name}.blocks" in self:
            blocks, scales = (self._part(f"{name}.{part}") for part in ("blocks", "scales"))
            return mxfp4(blocks, scales, (outputs, inputs), f"{self.folder}, {name}")
        if has_integers(name, self):
            self._agree(name, "int4")
            return integers(name, self, self._scaled, (outputs, inputs), self._integers, str(self.folder))
        tensor = self._read(f"{name}.weight")
        kind = kind_of(name, self, tensor.dtype)
        if kind is None:
            return self._dense(f"{name}.weight", outputs, inputs)
        self._agree(name, kind)
        stored = Stored(self._part, self, str(self.folder))
        if kind == "int8":
            return stored.eight_bit(name, outputs, inputs)
        return stored.four_bit(name, kind, outputs, inputs)

    def _agree(self, name: str, kind: Quant) -> None:
        if self._quant not in (None, kind):
            raise ModelError(f"{self.folder}: {name}.weight is {kind}, but config.json says {self._quant}.")

    def _scaled(self, name: str) -> Tensor:
        tensor = self._read(name)
        return self._finite(name, tensor) if tensor.dtype in DENSE else tensor

    def _dense(self, name: str, *shape: int) -> Tensor:
        tensor = self._read(name)
        if tensor.dtype == STORED and tensor.dim() == 2:
            scales = [name + ending for ending in SCALES if name + ending in self]
            tensor = dequantise_floats(name, tensor, self._read(scales[0]) if scales else None, str(self.folder))
        if tensor.dtype not in DENSE:
            raise ModelError(
                f"{self.folder}: tensor {name} is {tensor.dtype}, quantised in a way that specchat does not know; it "
                "knows bitsandbytes nf4, fp4 and int8, int4 and FP8 in the layers. Use the unquantised "
                "checkpoint."
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
                home = self._home[name]
                raise ModelError(
                    f"{home.file}: tensor {home.name} holds values that are no numbers (NaN or infinity). "
                    "Download the checkpoint again."
                )
        return tensor

    def _read(self, name: str) -> Tensor:
        if name not in self._home:
            raise ModelError(
                f"{self.folder}: tensor {name} is missing from the weights; config.json does not fit them."
            )
        home = self._home[name]
        try:
            return home.read()
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelError(
                f"{home.file}: tensor {home.name} cannot be read ({error}). Download the checkpoint again."
            ) from None

    def _part(self, name: str) -> Tensor:
        """Read a part of a quantised matrix; packed bytes may have any dtype."""
        tensor = self._read(name)
        return tensor if name.endswith(".weight") or tensor.dtype not in DENSE else self._finite(name, tensor)


def left_dense(checkpoint: Files, recipe: Recipe) -> frozenset[tuple[str, ...]]:
    """The names of the layers' matrices that are stored dense, at least in part.

    Raises:
        ModelError: a file is damaged or cut short.
    """
    with Weights(checkpoint) as weights:
        return frozenset(
            matrix.names
            for matrix, _ in recipe.forms
            if any(f"{name}.weight" in weights for name in matrix.of(0).names)
        )


def _of_text(name: str, beginning: str) -> str:
    """The name that a tensor of the text part has in a checkpoint that reads text alone."""
    if name.startswith(beginning):
        return f"model.{name.removeprefix(beginning)}"
    return name.removeprefix("language_model.")

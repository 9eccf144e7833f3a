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

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.formats import known
from specchat.engine.formats.format import Format
from specchat.engine.formats.layout import Weight
from specchat.engine.formats.quantise import dequantised
from specchat.engine.gguf.files import Stamp, check_unchanged
from specchat.engine.gguf.tensors import GgufTensors
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Recipe
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

HOST = torch.device("cpu")
DENSE = (torch.float32, torch.float16, torch.bfloat16)
TEXT_PARTS = ("model.language_model.", "language_model.model.")
"""Beginnings of names in checkpoints that read images too, where others have "model."."""


class Files(Protocol):
    """The parts of a `Checkpoint` that are read here."""

    @property
    def folder(self) -> Path: ...

    @property
    def format(self) -> Format | None: ...

    @property
    def shards(self) -> tuple[Path, ...]: ...

    @property
    def gguf(self) -> GgufTensors | None:
        """The tensors of a GGUF file, in the place of `shards`."""
        ...


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
        self.quant: Quant | None = checkpoint.format.quant if checkpoint.format else None
        own = [checkpoint.format] if checkpoint.format else []
        self._formats = (*own, *known())
        self._stack = ExitStack()
        self._home: dict[str, Home] = {}
        self._stamps: dict[Path, Stamp | None] = {}
        self._stacks: dict[str, int] = {}
        """Experts in each stack of them."""
        try:
            if checkpoint.gguf is not None:
                of_gguf = self._stack.enter_context(checkpoint.gguf)
                self._home = {name: Home(self.folder, of_gguf, name) for name in of_gguf.keys()}  # noqa: SIM118
            for file in checkpoint.shards if checkpoint.gguf is None else ():
                self._stamps[file] = Stamp.of(file)
                try:
                    handle = self._stack.enter_context(safe_open(file, framework="pt", device="cpu"))
                except (SafetensorError, OSError) as error:
                    raise ModelError(
                        f"{file} is damaged or cut short ({one_line(str(error))}). Download the checkpoint again."
                    ) from None
                self._home |= {renamed(name): Home(file, handle, name) for name in handle.keys()}  # noqa: SIM118
        except BaseException:
            self._stack.close()
            raise
        stored, self._home = self._home, {}
        for name, home in stored.items():
            self._add(name, home, stored)
        for beginning in TEXT_PARTS:
            if f"{beginning}embed_tokens.weight" in self._home:
                self._home = {_of_text(name, beginning): home for name, home in self._home.items()}

    def _add(self, name: str, home: Home, stored: Mapping[str, Home]) -> None:
        """Add a tensor by our name of it; a stack as the matrices of its experts. `stored` are all in the files."""
        parts: dict[str, Rows] = {}
        end, part = by_turns(name, stored)
        if end:
            parts = dict(of_turns(name, end, part, home.shape))
            self._stacks[name.removesuffix(part)] = next(iter(home.shape), 0)
        elif is_stack(name):
            gate_up, down = (stored[one].shape if one in stored else () for one in of_layer(name))
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
            ModelError: the tensor is missing, has another shape, or is quantised in an unknown way.
        """
        matrix = len(shape) == 2 and self.device.type != "cpu"
        dtype, module = torch.bfloat16 if matrix else torch.float32, name.removesuffix(".weight")
        if len(shape) == 2 and self._format(module) is not None:
            return dequantised(self.linear(module, *shape), dtype).to(self.device)
        # A copy even of float32: what stays mapped changes with its file, and ends the process if that shrinks.
        return self._dense(name, *shape).to(self.device, dtype, copy=True)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of tensor `name`; empty where there is none."""
        return self._home[name].shape if name in self else ()

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

    def linear(self, name: str, outputs: int, inputs: int) -> Weight:
        """Matrix `name` (without ".weight") as it is stored: dense in its own dtype, or in a format.

        Raises:
            ModelError: the matrix is missing, of another shape, damaged, or quantised in an unknown way.
        """
        stored = self._format(name)
        if stored is None:
            return self._dense(f"{name}.weight", outputs, inputs)
        if stored.quant and self.quant not in (None, stored.quant):
            raise ModelError(f"{self.folder}: {name}.weight is {stored.quant}, but config.json says {self.quant}.")
        found, whole = stored.read(self, name, (outputs, inputs)), f"{name}.weight"
        return self._finite(whole, found) if isinstance(found, Tensor) and whole in self else found

    def stored_dtype(self, name: str) -> str:
        """The name that safetensors has for the dtype of a tensor; empty where there is none."""
        home = self._home.get(name)
        return "" if home is None else str(home.handle.get_slice(home.name).get_dtype())

    def part(self, name: str) -> Tensor:
        """A tensor that is a part of a matrix; packed bytes may have any dtype.

        Raises:
            ModelError: it is missing, cannot be read, or holds NaN or infinity.
        """
        if name not in self and not name.endswith(".weight"):
            raise ModelError(f"{self.folder}: {name} is missing. Download the checkpoint again.")
        tensor = self._read(name)
        return tensor if name.endswith(".weight") or tensor.dtype not in DENSE else self._finite(name, tensor)

    def _format(self, name: str) -> Format | None:
        return next((one for one in self._formats if one.holds(self, name)), None)

    def _dense(self, name: str, *shape: int) -> Tensor:
        tensor = self._read(name)
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
        if home.file in self._stamps:
            check_unchanged(home.file, self._stamps[home.file])
        try:
            return home.read()
        except (SafetensorError, OSError, ValueError) as error:
            words = one_line(str(error))
            raise ModelError(
                f"{home.file}: tensor {home.name} cannot be read ({words}). Download the checkpoint again."
            ) from None


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

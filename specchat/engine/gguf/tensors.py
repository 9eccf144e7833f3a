"""Tensors of a GGUF file by their names in a recipe, as families expect them; files stay mapped meanwhile."""

import mmap
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import TracebackType
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.gguf import SIZES, TYPES
from specchat.engine.formats.quantise import dequantised
from specchat.engine.gguf.blocks import StoredAs
from specchat.engine.gguf.files import GgufFiles, check_unchanged
from specchat.engine.gguf.header import StoredTensor

DENSE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types that torch has, too."""


class TensorInfo(NamedTuple):
    """Shape and type of a tensor, without its values."""

    shape: tuple[int, ...]
    type: str

    def get_shape(self) -> tuple[int, ...]:
        return self.shape

    def get_dtype(self) -> str:
        return self.type


@dataclass(frozen=True)
class GgufTensors:
    """The tensors of a model, as `weights.Weights` reads them; a context manager that maps the files.

    Attributes:
        sources: of the tensors, by their names in the recipe; those that files lack are left out.
    """

    files: GgufFiles
    sources: Mapping[str, StoredAs]

    @cached_property
    def _maps(self) -> list[Tensor]:
        """The bytes of each file, uint8; the system reads them where they are used."""
        return [self._mapped(number) for number in range(len(self.files.headers))]

    def __enter__(self) -> "GgufTensors":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Tensors that are still used keep their file mapped.
        self.__dict__.pop("_maps", None)

    def keys(self) -> Iterable[str]:
        """The names of tensors that the files have."""
        return [name for name, source in self.sources.items() if self.files.holds(source.name)]

    def get_slice(self, name: str) -> TensorInfo:
        """The shape in the recipe and the type of a tensor; of latent attention's keys and values the joined one's."""
        source = self.sources[name]
        if source.values or source.name not in self.files.tensors:
            return TensorInfo(tuple(self.get_tensor(name).shape), "F32")
        _, stored = self.files.tensors[source.name]
        shape = stored.shape if source.expert is None else stored.shape[1:]
        shape = (len(source.rows), *shape[1:]) if source.rows else shape
        whole_blocks = not source.inputs or stored.type in DENSE or _run(source.inputs) % _size(stored.type)[0] == 0
        return TensorInfo(_with_ones(shape, source.dims), stored.type if whole_blocks else "F32")

    def get_tensor(self, name: str) -> Tensor:
        """A tensor in its own dtype, or bytes of blocks, uint8 [rows, bytes of a row].

        Raises:
            ValueError: it is of a type or a shape that is not read.
            ModelError: the file changed since it was opened.
        """
        source = self.sources[name]
        if source.name not in self.files.tensors:
            return self._listed(source)
        number, stored = self.files.tensors[source.name]
        if source.values:
            return self._latent(source)
        tensor = self._rows(number, stored)
        if source.expert is not None:
            if tensor.dim() < 2 or source.expert >= len(tensor):
                raise ValueError(f"it has shape {list(stored.shape)}, and no expert {source.expert}")
            tensor = tensor[source.expert]
        if source.rows:
            if max(source.rows) >= len(tensor):
                raise ValueError(f"it has shape {list(stored.shape)}, fewer rows than {max(source.rows) + 1}")
            of = source.rows
            tensor = tensor[of.start : of.stop] if isinstance(of, range) else tensor[torch.tensor(of)]
        if source.inputs:
            tensor = _in_order(tensor, stored.type, source.inputs)
        if source.change == "plus_one":
            tensor = tensor.float() - 1
        elif source.change == "exponential":
            tensor = (-tensor.double()).log().float()
        return tensor.reshape(_with_ones(tuple(tensor.shape), source.dims))

    def _mapped(self, number: int) -> Tensor:
        path = self.files.headers[number].path
        try:
            with open(path, "rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read ({error}). Check that it is a file you may read.") from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing writes to it
            return torch.frombuffer(data, dtype=torch.uint8)

    def _rows(self, number: int, stored: StoredTensor) -> Tensor:
        """A stored tensor, as a view of the file."""
        path, stamp = self.files.headers[number].path, self.files.stamps[number]
        check_unchanged(path, stamp)
        raw = self._maps[number][stored.offset : stored.offset + stored.bytes]
        if stored.type in DENSE:
            return raw.view(DENSE[stored.type]).view(stored.shape)
        size, octets = _size(stored.type)
        if not stored.shape or stored.shape[-1] % size:
            raise ValueError(f"it has shape {list(stored.shape)}, no rows of whole blocks")
        return raw.view(*stored.shape[:-1], stored.shape[-1] // size * octets)

    def _listed(self, source: StoredAs) -> Tensor:
        """A number of a list in the metadata, float32 [] or [1]."""
        listed, number = self.files.headers[0].entries(source.name), source.expert or 0
        if number >= len(listed) or not isinstance(listed[number], float):
            raise ValueError(f"{source.name} has no real number {number} in the metadata")
        return torch.tensor(listed[number], dtype=torch.float32).reshape(_with_ones((), source.dims))

    def _latent(self, source: StoredAs) -> Tensor:
        """Keys and values of latents as one matrix, float32 [heads * (key + value), latent]."""
        keys, values = (self.in_float32(name) for name in (source.name, source.values))
        if keys.dim() != 3 or values.dim() != 3 or len(keys) != len(values) or keys.shape[1] != values.shape[2]:
            raise ValueError(f"it has shape {list(keys.shape)}, and {source.values} {list(values.shape)}")
        return torch.cat((keys.transpose(1, 2), values), 1).flatten(0, 1).contiguous()

    def in_float32(self, name: str) -> Tensor:
        """A tensor by its name in the files, in float32.

        Raises:
            ValueError: it is missing, or of a type that is not read.
            ModelError: the file changed since it was opened.
        """
        if name not in self.files.tensors:
            raise ValueError(f"{name} is missing")
        number, stored = self.files.tensors[name]
        tensor = self._rows(number, stored)
        if stored.type in DENSE:
            return tensor.float()
        return _dequantised(tensor.flatten(0, -2), stored.type).view(stored.shape)


def _size(kind: str) -> tuple[int, int]:
    """Values and bytes of a block.

    Raises:
        ValueError: the type is not read here.
    """
    if kind in SIZES:
        return SIZES[kind]
    raise ValueError(f"it is of type {kind}")


def _in_order(tensor: Tensor, kind: str, order: Iterable[int]) -> Tensor:
    """Columns of a matrix in an order: of blocks where it moves whole ones, else float32."""
    index = torch.tensor([*order])
    if kind in DENSE:
        return tensor[:, index]
    size, octets = _size(kind)
    if _run(index.tolist()) % size:
        return _dequantised(tensor, kind)[:, index]
    moved: Tensor = tensor.unflatten(1, (-1, octets))[:, index[::size] // size].flatten(1)
    return moved


def _run(order: Iterable[int]) -> int:
    """The length of the runs of neighbours, all of it alike, that an order moves."""
    listed = [*order]
    breaks = [n for n in range(1, len(listed)) if listed[n] != listed[n - 1] + 1]
    return breaks[0] if breaks else len(listed)


def _dequantised(raw: Tensor, kind: str) -> Tensor:
    """Rows of blocks in float32."""
    size, octets = _size(kind)
    if kind not in TYPES:
        raise ValueError(f"it is of type {kind}")
    return dequantised(TYPES[kind].read(raw, raw.shape[1] // octets * size), torch.float32)


def _with_ones(shape: tuple[int, ...], dims: int) -> tuple[int, ...]:
    """A shape with the dimensions of 1 that files leave out: that of the taps' channels, or the first ones.

    Vectors that files have as matrices, such as norms of groups, become vectors.
    """
    if dims == 1 < len(shape):
        return (prod(shape),)
    while len(shape) < dims:
        shape = (*shape[:-1], 1, shape[-1]) if dims == 3 else (1, *shape)
    return shape

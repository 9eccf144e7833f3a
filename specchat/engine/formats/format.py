"""The interface of a weight format, and the layout of a matrix in memory, both apart from torch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from specchat.engine.formats.grids import OF_HALVES, SUPER_BLOCK
from specchat.engine.formats.settings import Quantised
from specchat.engine.protocol.pair import Quant

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import Weight

BLOCK = 64
"""Weights per scale in matrices quantised at load."""
NESTED_BLOCK = 256
"""Scales per nested scale, in double quantisation."""
TABLE_BYTES = 4 * 256
"""Bytes of a table that has the scale of each byte."""
KERNEL_BLOCKS = (64, 32)
"""Block sizes that the kernels support, where they divide a matrix's inputs."""

LARGEST = 127
"""The largest magnitude of a number of a row in 8 bits, and of one that a code may stand for."""
LEAST_PEAK = 2.0**-96
"""Blocks of such a row whose values are all smaller are zeros: the inverse of a subnormal number overflows."""


@dataclass(frozen=True)
class StorageLayout:
    """A quantised matrix in memory (`layout.Weight`), or one of `bits` alone.

    Attributes:
        bits: of a value.
        block: inputs that share a scale; 0: all of a row.
        scales: float32; "nested" and "exponents" take a byte each on a GPU, with a float32 for each NESTED_BLOCK and
            one for each output; in the compiled pass "exponents" take a byte. Those of a "table" take a
            byte everywhere, beside the table. Those that are "nested" stay so while
            rows keep their order and fill their blocks. "half" are float16, and "supers" a byte, with a float16 for
            each SUPER_BLOCK inputs.
        minimums: as many numbers as scales, in the same form; "paired": in the bytes of the scales.
        code: name of what its numbers stand for by a table; empty where they are whole.
        octets: bytes that a file has for SUPER_BLOCK inputs of numbers by a codebook; 0: all others.
        octets_apart: those of them that are scales apart from values.
        zeros: True where each scale has a zero point, int8.
        ordered: True where the inputs of a block may be any of a row, listed as int32.
    """

    bits: int
    block: int = 0
    scales: Literal["none", "float", "nested", "exponents", "table", "half", "supers"] = "none"
    zeros: bool = False
    ordered: bool = False
    minimums: Literal["none", "apart", "paired"] = "none"
    code: str = ""
    octets: int = 0
    octets_apart: int = 0

    def bytes(self, outputs: int, inputs: int, in_bytes: bool = False, in_words: bool = False) -> int:
        """Bytes of a matrix; scales take a byte each if they are `in_bytes`; `in_words`: as `gpu_blocks.WordBlocks`."""
        values = self.value_bytes(outputs, inputs)
        if self.scales == "none":
            return values
        scales = outputs * (inputs // self.block if self.block else 1)
        if self.scales in ("half", "supers"):
            forms = 1 if self.minimums == "none" else 2
            of_blocks = scales * (1 if self.minimums == "paired" else forms)
            supers = outputs * (inputs // SUPER_BLOCK) * forms
            widened = in_words and forms == 1 and (self.bits != OF_HALVES or bool(self.code))
            of_super = 4 if widened else 2
            if self.octets:
                return values + supers * (self.octets_apart + of_super - 2)
            return values + (2 * of_blocks if self.scales == "half" else of_blocks + of_super * supers)
        nested = 4 * -(-scales // NESTED_BLOCK) + 4 * outputs if in_words and self.scales == "nested" else 0
        of_scales = scales + nested if in_bytes else 4 * scales
        table = TABLE_BYTES if self.scales == "table" else 0
        return values + of_scales + table + self.zeros * scales + self.ordered * 4 * inputs

    def value_bytes(self, outputs: int, inputs: int) -> int:
        """Bytes of the values of a matrix, without scales."""
        if self.octets:
            return outputs * (inputs // SUPER_BLOCK) * (self.octets - self.octets_apart)
        return outputs * inputs * self.bits // 8


class StoredParts(Protocol):
    """The tensors of a checkpoint in `folder`, by name."""

    @property
    def folder(self) -> Path: ...

    def __contains__(self, name: object) -> bool: ...

    def stored_dtype(self, name: str) -> str:
        """The name that safetensors has for the dtype of a tensor; empty where there is none."""
        ...

    def part(self, name: str) -> "Tensor":
        """A tensor that is a part of a matrix.

        Raises:
            ModelError: it is missing, cannot be read, or holds NaN or infinity.
        """
        ...


class Format(ABC):
    """The storage of matrices. Names of matrices are without ".weight".

    Attributes:
        quant: quantisation of the layers' matrices; None: experts alone have it, or memory holds them dense.
        code: the value of each nibble, where values have 4 bits.
        of_experts: True where the matrices of experts alone have it.
        renames: True where matrices are stored under other names than ".weight", which dense ones beside them have.
        ordered: as in `StorageLayout`.
        by_name: True where any matrix may have it, tables of tokens too, and its name tells the layout.
        int8_rows: True where a matrix in it may multiply rows of 8 bits (`int8_rows.takes_int8_rows`).
    """

    quant: Quant | None = None
    code: tuple[float, ...] = ()
    of_experts = False
    renames = False
    ordered: bool = False
    by_name = False
    int8_rows = False

    @property
    def stays(self) -> bool:
        """True where memory holds matrices as the files do; False: dense."""
        return self.quant is not None or self.of_experts

    @property
    def name(self) -> str:
        """The name for users."""
        return self.quant or ""

    @abstractmethod
    def stated(self, settings: Quantised) -> "Format | None":
        """Return this format as "quantization_config" states it; None where that states another."""

    @abstractmethod
    def holds(self, source: StoredParts, name: str) -> bool:
        """True where matrix `name` is stored so."""

    @abstractmethod
    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "Weight":
        """Read a matrix of a shape (outputs, inputs); dense where no kernel has its blocks.

        Raises:
            ModelError: a part is missing, or does not fit the others or the settings.
        """

    @abstractmethod
    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        """The layout of matrix `name`, of so many inputs, in memory; None: dense."""

    def pack(self, matrix: "Tensor") -> "Weight":
        """Quantise a dense matrix float [outputs, inputs] on its device; dense where its rows do not fill blocks.

        Raises:
            ModelError: a package is not installed.
            NotImplementedError: matrices are read in this format alone.
        """
        raise NotImplementedError(f"matrices are not quantised to {self.name} here")


def block_of(group: int, inputs: int) -> int:
    """The largest block of the kernels for groups of so many inputs; 0 where there is none."""
    return next((block for block in KERNEL_BLOCKS if group % block == 0 and inputs % group == 0), 0)

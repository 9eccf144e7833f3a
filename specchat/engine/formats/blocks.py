"""Formats of quantised weights by name and size of block, apart from torch, which plans do without."""

from dataclasses import dataclass

BLOCK = 64
"""Weights per scale in matrices quantised at load."""
MXFP4 = "mxfp4"
"""`quant_method` of a checkpoint whose experts are stored in MXFP4."""
MXFP4_BLOCK = 32
"""Weights per scale in MXFP4."""
NESTED_BLOCK = 256
"""Scales per nested scale, in double quantisation."""
KERNEL_BLOCKS = (64, 32)
"""Block sizes that the kernels support, where they divide a matrix's inputs."""


@dataclass(frozen=True)
class IntegerFormat:
    """Storage of 4-bit integers in a checkpoint, by its config.json.

    Attributes:
        group: inputs that share a scale; 0: all of a row have one.
        zeros: True where each group has a zero point; False: it is 8 for all.
        less_one: True where the files hold zero points less one, as GPTQ's first version has them.
        awq: True for words of eight outputs in AWQ's order; False: of eight inputs.
        ordered: True where the inputs of a group may be any of a row.
    """

    group: int = MXFP4_BLOCK
    zeros: bool = False
    less_one: bool = False
    awq: bool = False
    ordered: bool = False

    def block(self, inputs: int) -> int:
        """Size of the blocks in memory of a matrix of so many inputs; 0 where no kernel has one for its groups."""
        group = self.group or inputs
        return next((block for block in KERNEL_BLOCKS if group % block == 0 and inputs % group == 0), 0)


SYMMETRIC = IntegerFormat()
"""The storage where no config.json states another."""

"""Measures products with 4-bit integers on the processor, with zero points beside without.

    python -m measure.cpu_zeros [--outputs 4096] [--inputs 4096] [--group 128] [--repeats 40]

One thread, unlike rows. The two take turns. The table has milliseconds of the processor, which others on the machine
change little, in the lower quartile, and the median of the ratios of neighbours.
"""

import argparse
from dataclasses import replace
from statistics import median, quantiles
from time import process_time

import numpy as np
import torch

from specchat.engine.cpu import passes
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.products import PANELS, kernels_of
from specchat.engine.cpu.together import LINE
from specchat.engine.formats import FourBit
from specchat.engine.model.blocks import IntegerFormat
from specchat.engine.model.quantise import code_table
from specchat.engine.model.vectors import LANES

ROWS = (1, 2, 4, 8, 16, 32, 64)


class Multiplication:
    """A product of a pass, after a norm, for any number of rows."""

    def __init__(self, weight: FourBit) -> None:
        self._packed, self._inputs = Packed(), weight.shape[1]
        self._packed.add(weight)
        self._table = self._packed.table
        self._kernels, self._norm = kernels_of(self._table), np.ones(self._inputs, np.float32)

    def milliseconds(self, x: np.ndarray) -> float:
        """Time of the product with the rows of x."""
        rows = len(x)
        out = np.zeros((rows, LANES * int(self._table[0, PANELS])), np.float32)
        own, counters = np.zeros((1, 2, rows, self._inputs), np.float32), np.zeros(2 * LINE, np.int64)
        of, extras, none = self._table[0], self._packed.extras, np.float32(0)
        started = process_time()
        passes.head(x, rows, of, self._kernels, extras, self._norm, none, none, out, own, counters, 0, 1)
        return 1e3 * (process_time() - started)


def made(outputs: int, inputs: int, group: int) -> tuple[FourBit, FourBit]:
    """Random integers without zero points, and with."""
    drawn, block = torch.Generator().manual_seed(0), IntegerFormat(group).block(inputs)
    octets = torch.randint(256, (outputs, inputs // 2), generator=drawn, dtype=torch.uint8)
    plain = FourBit(octets, torch.rand(outputs, inputs // block, generator=drawn), code_table("int4"), block)
    zeros = torch.randint(-8, 8, plain.scales.shape, generator=drawn, dtype=torch.int8)
    return plain, replace(plain, zeros=zeros)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("outputs", 4096), ("inputs", 4096), ("group", 128), ("repeats", 40)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    plain, shifted = (Multiplication(one) for one in made(given.outputs, given.inputs, given.group))
    print(f"{'rows':>4} {'without':>8} {'with':>8} {'ratio':>6}")
    for rows in ROWS:
        x = np.random.default_rng(rows).standard_normal((rows, given.inputs)).astype(np.float32)
        pairs = [(plain.milliseconds(x), shifted.milliseconds(x)) for _ in range(1 + given.repeats)][1:]
        without, beside = (quantiles(one)[0] for one in zip(*pairs, strict=True))
        print(f"{rows:4} {without:8.2f} {beside:8.2f} {median(b / a for a, b in pairs):6.3f}")


if __name__ == "__main__":
    main()

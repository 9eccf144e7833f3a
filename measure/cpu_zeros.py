"""Measures products with 4-bit integers on the processor: with zero points, and with inputs in an order.

    python -m measure.cpu_zeros [--outputs 4096] [--inputs 4096] [--group 128] [--repeats 40]

One thread, unlike rows. The three take turns. The table has milliseconds of the processor, which others on the machine
change little, in the lower quartile, and the medians of the ratios of neighbours.
"""

import argparse
from dataclasses import replace
from statistics import median, quantiles
from time import process_time

import numpy as np
import torch
from numba import types

from specchat.engine.cpu.description.buffers import pass_buffers
from specchat.engine.cpu.layers.passes import HEAD as HEAD_CODE
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.primitives.records import HEAD, PASS, Structure
from specchat.engine.cpu.primitives.simd import python_callable
from specchat.engine.cpu.products.products import RowSpan
from specchat.engine.cpu.products.shared import in_order
from specchat.engine.cpu.threads.dispatch import board, lead
from specchat.engine.formats.format import block_of
from specchat.engine.formats.layout import FourBit
from specchat.engine.formats.quantise import code_table
from specchat.engine.memory.vectors import LANES

ROWS = (1, 2, 4, 8, 16, 32, 64)


@python_callable(types.void(*[types.int64] * 5))
def gathered(rows: int, x: int, matrix: int, out: int, row: int) -> None:
    """Write the rows of a product's inputs in the order of its weights, as a pass does before it."""
    in_order(rows, RowSpan(x, row), matrix, RowSpan(out, row))


class Multiplication:
    """A product of a pass, after a norm, for any number of rows."""

    def __init__(self, weight: FourBit) -> None:
        self._packed, self._inputs = Packed(), weight.shape[1]
        self._packed.add(weight)
        self._table = self._packed.table
        self._norm, self._board = np.ones(self._inputs, np.float32), board(1)

    def milliseconds(self, x: np.ndarray) -> float:
        """Time of the product with the rows of x."""
        rows = len(x)
        out = np.zeros((rows, LANES * int(self._table[0]["panels"])), np.float32)
        own, scores = np.zeros((1, 2, rows, self._inputs), np.float32), np.zeros((1, 1), np.float32)
        head = Structure(HEAD, matrix=self._table, norm=self._norm, logits=out, logits_row=out.shape[1])
        run = Structure(
            PASS, x=x, rows=rows, hidden=self._inputs, head=head, head_code=HEAD_CODE, **pass_buffers(out, own, scores)
        )
        started = process_time()
        gathered(rows, x.ctypes.data, self._table.ctypes.data, own[0, 1].ctypes.data, self._inputs)
        lead(self._board, run.address, 1)
        return 1e3 * (process_time() - started)


def made(outputs: int, inputs: int, group: int) -> tuple[FourBit, FourBit, FourBit]:
    """Random integers alone, with zero points, and with inputs in an order."""
    drawn, block = torch.Generator().manual_seed(0), block_of(group, inputs)
    octets = torch.randint(256, (outputs, inputs // 2), generator=drawn, dtype=torch.uint8)
    plain = FourBit(octets, torch.rand(outputs, inputs // block, generator=drawn), code_table("int4"), block)
    zeros = torch.randint(-8, 8, plain.scales.shape, generator=drawn, dtype=torch.int8)
    order = torch.randperm(inputs, generator=drawn).to(torch.int32)
    return plain, replace(plain, zeros=zeros), replace(plain, order=order)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("outputs", 4096), ("inputs", 4096), ("group", 128), ("repeats", 40)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    forms = [Multiplication(one) for one in made(given.outputs, given.inputs, given.group)]
    print(f"{'rows':>4} {'alone':>8} {'zeros':>8} {'ratio':>6} {'order':>8} {'ratio':>6}")
    for rows in ROWS:
        x = np.random.default_rng(rows).standard_normal((rows, given.inputs)).astype(np.float32)
        times = [[form.milliseconds(x) for form in forms] for _ in range(1 + given.repeats)][1:]
        alone, *others = (quantiles(one)[0] for one in zip(*times, strict=True))
        ratios = (median(of[place] / of[0] for of in times) for place in (1, 2))
        print(f"{rows:4} {alone:8.2f}", *(f"{one:8.2f} {of:6.3f}" for one, of in zip(others, ratios, strict=True)))


if __name__ == "__main__":
    main()

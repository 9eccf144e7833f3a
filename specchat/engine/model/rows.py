"""Matrix products whose row r does not depend on how many rows go through together, bit for bit.

A BLAS picks another kernel, and so another order of sums, for another row count: a token checked among eight would then
get other logits than the same token alone, and near-ties would flip. Each product here is arranged so that this cannot
happen, and the arrangement is proved on the machine at hand, for each shape, before it is used.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

TILE = 16
"""Rows of the fixed tile; a verify step has at most this many."""

PROBED_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 31, 64, 128)
"""Row counts at which an arrangement must agree with itself; prefill goes in blocks of `PREFILL_ROWS`."""

PREFILL_ROWS = 128
FOUR = 4

SMALL = 1 << 18
"""Weights of a product whose call costs more than its arithmetic: oneDNN takes 12 microseconds before it starts."""
LARGE = 1 << 20
"""Weights of a matrix that caches do not hold from step to step."""

Product = Callable[[Tensor], Tensor]


class Linear:
    """y = x W^T + b for x float32 [rows, inputs], 1 <= rows <= PREFILL_ROWS; row-invariant unless for drafting."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, drafting: bool = False) -> None:
        """`weight` float32 [outputs, inputs], `bias` float32 [outputs].

        With `drafting` a small product takes the shortest way, whatever it rounds to: no text depends on it.
        """
        self._product: Product
        if drafting and weight.numel() <= SMALL:
            self.arrangement, self._product = "library", Library(weight, bias)
        else:
            self.arrangement, self._product = arrange(weight, bias)
        self._numbers = weight.numel() + (0 if bias is None else bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x)

    @property
    def operands(self) -> tuple[Tensor, Tensor | None] | None:
        """Weight and bias for a caller that makes the product itself; None where there is more to it."""
        return self._product.operands if isinstance(self._product, Library | Packed) else None

    def memory(self) -> int:
        """Bytes held between calls: float32, laid out anew or as it was."""
        return 4 * self._numbers


class Library:
    """Whatever the library does with so many rows: not row-invariant."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.operands = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, *self.operands)


class Packed:
    """oneDNN with the weight laid out once: the same micro-kernel for every row count."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.operands = torch.ops.mkldnn._reorder_linear_weight(weight, TILE), bias
        self._run = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self.operands
        return self._run(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def packed_four(weight: Tensor, bias: Tensor | None) -> Product:
    """As `Packed`, with at least four rows: one to three read a large matrix more slowly than four do, by a quarter."""
    many = Packed(weight, bias)

    def product(x: Tensor) -> Tensor:
        rows = x.shape[0]
        return many(x) if rows >= FOUR else many(pad(x, (0, 0, 0, FOUR - rows)))[:rows]

    return product


def tiled(weight: Tensor, bias: Tensor | None) -> Product:
    """Any BLAS, always called with one fixed number of rows."""

    def product(x: Tensor) -> Tensor:
        rows = x.shape[0]
        blocks = pad(x, (0, 0, 0, -rows % TILE)).split(TILE)
        return torch.cat([linear(block, weight, bias) for block in blocks])[:rows]

    return product


def one_by_one(weight: Tensor, bias: Tensor | None) -> Product:
    """Row by row: slow, and exact by construction."""

    def product(x: Tensor) -> Tensor:
        return torch.cat([linear(row, weight, bias) for row in x.split(1)])

    return product


ARRANGEMENTS: dict[str, Callable[[Tensor, Tensor | None], Product]] = {
    "packed": Packed,
    "packed-four": packed_four,
    "tiled": tiled,
    "one-by-one": one_by_one,
}


_proved: dict[tuple[int, int, int], str] = {}
"""(outputs, inputs, torch threads) -> the arrangement that was proved row-invariant for this shape here."""


def arrange(weight: Tensor, bias: Tensor | None) -> tuple[str, Product]:
    """The first arrangement that is row-invariant for this shape on this machine, and the product so arranged."""
    key = (weight.shape[0], weight.shape[1], torch.get_num_threads())
    if key in _proved:
        return _proved[key], ARRANGEMENTS[_proved[key]](weight, bias)
    x = torch.randn(max(PROBED_ROWS), weight.shape[1], generator=torch.Generator().manual_seed(0))
    names = sorted(ARRANGEMENTS, key=lambda name: name != "packed-four") if weight.numel() >= LARGE else ARRANGEMENTS
    for name in names:
        make = ARRANGEMENTS[name]
        if name.startswith("packed") and not torch.backends.mkldnn.is_available():
            continue
        try:
            product = make(weight, bias)
            proved = row_invariant(product, x)
        except (AttributeError, RuntimeError):  # a build of torch without these kernels
            continue
        if proved:
            _proved[key] = name
            return name, product
    raise AssertionError("one-by-one is row-invariant by construction")


def row_invariant(product: Product, x: Tensor) -> bool:
    """Whether rows of x [>= max(PROBED_ROWS), inputs] come out the same alone, in any block, at any place in it."""
    whole = product(x)
    alone = torch.cat([product(row) for row in x[:TILE].split(1)])
    shifted = product(x[1:TILE])
    return (
        torch.equal(whole[:TILE], alone)
        and torch.equal(whole[1:TILE], shifted)
        and all(torch.equal(product(x[:rows]), whole[:rows]) for rows in PROBED_ROWS)
    )

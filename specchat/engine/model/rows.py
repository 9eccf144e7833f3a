"""Matrix products whose row r does not depend on how many rows go through together, bit for bit.

A BLAS picks another kernel, and so another order of sums, for another row count: a token checked among eight would then
get other logits than the same token alone, and near-ties would flip. Each product here is arranged so that this cannot
happen, and the arrangement is checked on the machine at hand, for each shape, before it is used.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from specchat.engine.model.padding import Padding, measured
from specchat.engine.out_of_memory import ran_out

TILE = 16
"""Rows of the fixed tile; a verify step has at most this many."""

PROBED_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 31, 64, 128)
"""Row counts at which an arrangement must agree with itself; prefill goes in blocks of `PREFILL_ROWS`."""

PREFILL_ROWS = 128
FOUR = 4

UNPADDED: Padding = tuple(range(PREFILL_ROWS + 1))
PROBED_OUTPUTS = 64
"""Outputs of the matrix that row counts are tried with: which way a library goes depends on rows and inputs."""

SMALL = 1 << 18
"""Weights of a product whose call costs more than its arithmetic: oneDNN takes 12 microseconds before it starts."""
HALF_ERROR = 2.0**-25
SHARED = 1 << 19
"""Weights of a matrix that is worth the start of several threads."""
LARGE = 1 << 20
"""Weights of a matrix that caches do not hold from step to step."""

Product = Callable[[Tensor], Tensor]
Arrangement = Callable[[Tensor, Tensor | None], Product]


class Linear:
    """y = x W^T + b for x float32 [rows, inputs], 1 <= rows <= PREFILL_ROWS; row-invariant unless for drafting."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, drafting: bool = False) -> None:
        """`weight` float32 [outputs, inputs], `bias` float32 [outputs].

        With `drafting` a product takes the shortest way, whatever it rounds to: no text depends on it. A weight that is
        not in main memory is for drafting.
        """
        self._product: Product
        if weight.device.type != "cpu":
            self.arrangement, self._product = "bfloat16", Narrow(weight, bias)
        else:
            self.arrangement, self._product = arrange(weight, bias)
            if drafting and isinstance(self._product, Half):
                self._product.padding = UNPADDED
            elif drafting and weight.numel() <= SMALL:
                self.arrangement, self._product = "library", Library(weight, bias)
        width = 2 if isinstance(self._product, Half | Narrow) else 4
        self._bytes = width * weight.numel() + (0 if bias is None else 4 * bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x)

    @property
    def operands(self) -> tuple[Tensor, Tensor | None] | None:
        """Weight and bias for a caller that makes the product itself; None where there is more to it than `padding`."""
        return self._product.operands if isinstance(self._product, Half | Library | Packed) else None

    @property
    def padding(self) -> Padding:
        """How many rows a caller that makes the product itself must give it."""
        return self._product.padding if isinstance(self._product, Half) else UNPADDED

    def memory(self) -> int:
        """Bytes held between calls: float32, laid out anew or as it was."""
        return self._bytes


class Half:
    """FBGEMM, weights packed as float16, activations and sums float32: half the bytes, and hardly any cost of a call.

    Its kernels for one or two rows left over sum in another order on a processor without AVX-512: such counts of rows
    are padded. Not spread over threads: for one thread, or matrices that a core goes through in microseconds.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.operands, self._multiply = self.packed(weight, bias)
        self.padding = half_padding(self.packed, weight.shape[1], torch.get_num_threads())

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        extra = self.padding[rows] - rows
        return self._multiply(pad(x, (0, 0, 0, extra)))[:rows] if extra else self._multiply(x)

    @staticmethod
    def packed(weight: Tensor, bias: Tensor | None) -> tuple[tuple[Tensor, Tensor | None] | None, Product]:
        """What the product is made of, if others can make it too, and the product without padding."""
        with warnings.catch_warnings():
            # Both say once that they are deprecated; where they are gone, the next arrangement takes over.
            warnings.simplefilter("ignore")
            packed = torch.fbgemm_pack_gemm_matrix_fp16(weight.contiguous())
            torch.fbgemm_linear_fp16_weight_fp32_activation(torch.zeros(1, weight.shape[1]), packed, bias)
        run = torch.ops.aten.fbgemm_linear_fp16_weight_fp32_activation.default
        return (packed, bias), lambda x: run(x, packed, bias)


class HalfThreaded(Half):
    """The same arithmetic as `Half`, spread over threads."""

    @staticmethod
    def packed(weight: Tensor, bias: Tensor | None) -> tuple[None, Product]:
        packed = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), bias)
        run = torch.ops.quantized.linear_dynamic_fp16.default
        return None, lambda x: run(x, packed)


@cache
def half_padding(pack: Callable[[Tensor, Tensor | None], tuple[object, Product]], inputs: int, threads: int) -> Padding:
    """How many rows go through FBGEMM here in place of each count, with so many inputs on so many threads of torch."""
    del threads  # but results are kept apart
    generator = torch.Generator().manual_seed(0)
    _, multiply = pack(torch.randn(PROBED_OUTPUTS, inputs, generator=generator), None)
    return measured(multiply, torch.randn(PREFILL_ROWS, inputs, generator=generator))


def fits_half(weight: Tensor) -> bool:
    """Whether float16 holds a matrix: exactly, or but for bits of bfloat16 below 2**-25."""
    slabs = weight.split(max(1, LARGE // weight.shape[1]))
    return all(bool((slab.half().float() - slab).abs().max() <= HALF_ERROR) for slab in slabs)


class Library:
    """Whatever the library does with so many rows: not row-invariant."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.operands = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, *self.operands)


class Narrow:
    """The library with weights, inputs and results of bfloat16: on a GPU half the bytes. Not row-invariant."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.bfloat16(), bias

    def __call__(self, x: Tensor) -> Tensor:
        y = linear(x.bfloat16(), self._weight).float()
        return y if self._bias is None else y + self._bias


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


ARRANGEMENTS: dict[str, Arrangement] = {
    "half": Half,
    "half-threaded": HalfThreaded,
    "packed": Packed,
    "packed-four": packed_four,
    "tiled": tiled,
    "one-by-one": one_by_one,
}


_checked: dict[tuple[int, int, bool, int], str] = {}
"""(outputs, inputs, fits float16, torch threads) -> the arrangement that was found to be row-invariant here."""


def arrange(weight: Tensor, bias: Tensor | None) -> tuple[str, Product]:
    """The first arrangement that is row-invariant for this shape on this machine, and the product so arranged.

    Raises:
        MemoryError, RuntimeError: memory ran out (`out_of_memory.ran_out`).
    """
    half = fits_half(weight)
    key = (weight.shape[0], weight.shape[1], half, torch.get_num_threads())
    if key in _checked:
        return _checked[key], ARRANGEMENTS[_checked[key]](weight, bias)
    x = torch.randn(max(PROBED_ROWS), weight.shape[1], generator=torch.Generator().manual_seed(0))
    for name in _candidates(weight.numel(), half):
        product = attempted(ARRANGEMENTS[name], weight, bias, x)
        if product is not None:
            _checked[key] = name
            return name, product
    return "one-by-one", one_by_one(weight, bias)


def attempted(arrangement: Arrangement, weight: Tensor, bias: Tensor | None, x: Tensor) -> Product | None:
    """The product so arranged; None where this torch cannot make it, or makes rows of x that depend on each other.

    Raises:
        MemoryError, RuntimeError: memory ran out, which tells nothing of the arrangement.
    """
    try:
        product = arrangement(weight, bias)
        return product if row_invariant(product, x) else None
    except (AttributeError, RuntimeError) as error:  # a build of torch without these kernels
        if ran_out(error):
            raise
        return None


def _candidates(size: int, half: bool) -> Iterator[str]:
    """Names of arrangements for a matrix of `size` weights, the fastest first."""
    if half:
        yield "half-threaded" if torch.get_num_threads() > 1 and size >= SHARED else "half"
    if torch.backends.mkldnn.is_available():
        yield from ("packed-four", "packed") if size >= LARGE else ("packed", "packed-four")
    yield "tiled"


@cache
def half_works() -> bool:
    """Whether this torch and processor multiply with float16 weights row-invariantly, tried on one matrix."""
    x = torch.randn(max(PROBED_ROWS), 320, generator=torch.Generator().manual_seed(0))
    return attempted(Half, torch.ones(96, 320), None, x) is not None


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

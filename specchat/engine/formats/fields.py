"""Numbers of a few bits that lie in bytes."""

import torch
from torch import Tensor


def fields(octets: Tensor, bits: int) -> Tensor:
    """Numbers of 1, 2, 4 or 8 bits uint8 [..., n * 8 / bits] from bytes [..., n], the lowest bits first."""
    parts: list[Tensor] = [octets >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return parts[0] if len(parts) == 1 else torch.stack(parts, -1).flatten(-2)


def from_fields(numbers: Tensor, bits: int) -> Tensor:
    """Bytes [..., n * bits / 8] of the lowest `bits` bits of numbers uint8 [..., n]: the inverse of `fields`."""
    return joined_fields((numbers & ((1 << bits) - 1)).view(torch.int64), bits).view(*numbers.shape[:-1], -1)


def joined_fields(words: Tensor, bits: int) -> Tensor:
    """Bytes uint8 [n * bits] of numbers of 4, 2 or 1 bits, which are the bytes of words, int64 [n]; overwrites them."""
    for step in range(4 - bits.bit_length()):
        # Each byte is joined with the one after it, then with the next two, then with the next four.
        words.bitwise_or_(words >> ((8 - bits) << step))
    return words.view({4: torch.int16, 2: torch.int32, 1: torch.int64}[bits]).to(torch.uint8)

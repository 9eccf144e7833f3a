"""Rows in bfloat16 for products with dense weights in bfloat16."""

import torch
from torch import Tensor


def to_bfloat16(numbers: Tensor) -> Tensor:
    """Numbers as bfloat16, rounded to the nearest, halves to the even one.

    Results below the smallest normal number are zeros of their sign, as processors take them for.
    """
    found = numbers.to(torch.bfloat16)
    return torch.where(found.abs() < torch.finfo(torch.bfloat16).tiny, found * 0, found)

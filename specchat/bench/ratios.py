"""The mean of ratios that were measured side by side, with its interval."""

from collections.abc import Sequence
from math import exp, sqrt
from statistics import fmean, stdev

SURE = 1.96
"""Standard errors on each side of a mean that hold it in 95 of 100 cases."""


def ratio_interval(logs: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, given as logarithms, and the ends of its 95 % interval; unbounded for one ratio."""
    mean = fmean(logs)
    spread = SURE * stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else float("inf")
    return exp(mean), exp(mean - spread), exp(mean + spread)

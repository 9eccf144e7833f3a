"""Times passes with weights asked for ahead of their products beside the same without, in turn, on random weights.

Which is faster decides whether, and where, `engine/kernels/ahead.py` stays.
"""

from collections.abc import Mapping
from typing import Any

import torch

from measure.gpu.checks import Check, command
from specchat.bench.prefetch import MODELS, Rows, captured_in_turn, passes
from specchat.bench.published import PUBLISHED


def _on_gpu(_: Any) -> Rows:
    configs = {name: PUBLISHED[name].target for name in MODELS}
    return passes(configs, torch.device("cuda"), torch.bfloat16, captured_in_turn)


CHECKS: Mapping[str, Check] = {"ahead": _on_gpu}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()

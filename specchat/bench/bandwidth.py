"""Bytes a second that a processor or a GPU reads of its memory, which bound a step of one token."""

from time import perf_counter

from specchat.engine.hardware.bandwidth import MEBIBYTES, SECONDS, processor_bandwidth, quick
from specchat.engine.memory.need import Place


def read_bandwidth(place: Place) -> float:
    """Bytes a second, as a decoder reads weights. On a GPU a block is copied, which reads and writes it."""
    if place == "cpu":
        return processor_bandwidth()
    import torch

    block = torch.zeros(MEBIBYTES << 20, dtype=torch.uint8, device="cuda")

    def copied() -> None:
        block.clone()
        torch.cuda.synchronize(block.device)

    return 2 * block.numel() / quick([copied], perf_counter, SECONDS)

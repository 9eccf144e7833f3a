"""The host's inputs of passes: tokens, positions and rows of pictures, in buffers that captures know."""

from collections.abc import Sequence

import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.kernels.gpu_shapes import PROMPT_ROWS
from specchat.engine.pictures.rows import PictureRows
from specchat.engine.protocol.picture_ids import FIRST


class PassInputs:
    """The inputs of a model's passes.

    Attributes:
        tokens: int32 [PROMPT_ROWS].
        start: int32 [1], position of the first.
        last: int32 [1], the last row that counts.
    """

    def __init__(self, decoder: DeviceDecoder) -> None:
        self._hidden, self._rows = decoder.config.hidden, decoder.buffers.pictures
        self.tokens = torch.zeros(PROMPT_ROWS, device=decoder.device, dtype=torch.int32)
        self.start, self.last = (torch.zeros(1, device=decoder.device, dtype=torch.int32) for _ in range(2))

    def put(self, tokens: Sequence[int], start: int, pictures: PictureRows | None = None) -> None:
        """Set them for a pass over `tokens` from position `start` on; `pictures` has the rows of those among them."""
        self.tokens[: len(tokens)].copy_(torch.tensor(tokens, dtype=torch.int32))
        if pictures is not None and self._rows is not None and max(tokens) >= FIRST:
            self._rows[: len(tokens)].copy_(pictures.put(torch.zeros(len(tokens), self._hidden), tokens))
        self.start.fill_(start)
        self.last.fill_(len(tokens) - 1)

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
        deep: number of first layers after which rows are added to those of pictures.
    """

    def __init__(self, decoder: DeviceDecoder) -> None:
        self._hidden, self._rows = decoder.config.hidden, decoder.buffers.pictures
        self.deep = 0 if self._rows is None else len(self._rows) - 1
        self.tokens = torch.zeros(PROMPT_ROWS, device=decoder.device, dtype=torch.int32)
        self.start, self.last = (torch.zeros(1, device=decoder.device, dtype=torch.int32) for _ in range(2))

    def put(self, tokens: Sequence[int], start: int, pictures: PictureRows | None = None) -> int:
        """Set them for a pass over `tokens` from position `start` on; `pictures` has the rows of those among them.

        Returns:
            `deep` for this pass: 0 without pictures.
        """
        count = len(tokens)
        self.tokens[:count].copy_(torch.tensor(tokens, dtype=torch.int32))
        self.start.fill_(start)
        self.last.fill_(count - 1)
        if pictures is None or self._rows is None or max(tokens) < FIRST:
            return 0
        self._rows[0, :count].copy_(pictures.put(torch.zeros(count, self._hidden), tokens))
        for layer in range(1, self.deep + 1):
            # Adding -0 leaves a text's row its bits.
            added = torch.full((count, self._hidden), -0.0)
            self._rows[layer, :count].copy_(pictures.add(added, tokens, layer))
        return self.deep

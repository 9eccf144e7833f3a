"""Ways in which families read pictures. A further family is a line of `KINDS`, where it reads them in such a way.

The app imports this, so torch is not imported here.
"""

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, NamedTuple

from specchat.engine.recipe import Rope

COUNTS = {"num_crops", "num_soft_tokens_per_image"}
"""Inputs that a tower does not take: crops of a picture beside it, and its tokens."""


class Grid(NamedTuple):
    """Rows of a picture's features, and features of a row; each is a token."""

    rows: int
    columns: int

    @property
    def cells(self) -> int:
        """Number of features."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Kind:
    """A way to read pictures.

    Attributes:
        processor: transformers' class that makes a tower's inputs of pixels, computed by Pillow and numpy.
        tower: beginnings of the names of the tower's and the projector's tensors in transformers' model.
        sizes: the input with the size of a picture: in pixels, or time, height and width in patches; or a number in
            `COUNTS`.
        breaks: tokens after each row of features, and after the last one.
        sections: rotations by time, height and width where config.json names none; empty: one position for all.
        interleaved: the sections take turns, and do not follow one another.
        deep: rows are added after the first layers, too (DeepStack).
        written: what a template writes for a picture, and what stands there before the text is split into tokens; None
            where that is the picture's token.
        stand_in: the picture's token, and one that stands for it where a GGUF file's vocabulary lacks it.
    """

    processor: str
    tower: tuple[str, ...]
    sizes: str
    breaks: tuple[str, str] = ("", "")
    sections: tuple[int, ...] = ()
    interleaved: bool = False
    deep: bool = False
    written: tuple[str, str] | None = None
    stand_in: tuple[str, str] = ("", "")

    def merge(self, config: Any) -> int:
        """Patches along each side of a feature, by the settings of a checkpoint."""
        vision = config.vision_config
        if self.sizes == "num_crops":
            return int(vision.image_size // vision.patch_size // isqrt(config.mm_tokens_per_image))
        if self.sizes == "num_soft_tokens_per_image":
            return int(vision.pooling_kernel_size)
        return int(getattr(config, "spatial_merge_size", None) or vision.spatial_merge_size)

    def grid(self, inputs: Any, config: Any) -> Grid:
        """The grid of the one picture of a processor's `inputs`, by the settings of a checkpoint."""
        if self.sizes == "num_crops":
            return Grid(*[isqrt(config.mm_tokens_per_image)] * 2)
        if self.sizes == "num_soft_tokens_per_image":
            return Grid(1, int(inputs[self.sizes][0]))
        height, width = inputs[self.sizes][0].tolist()[-2:]
        cell = self.merge(config) * (1 if self.sizes == "image_grid_thw" else config.vision_config.patch_size)
        return Grid(height // cell, width // cell)

    def axes(self, rope: Rope) -> list[int]:
        """For each rotation of `rope` the position that it turns by: 0 time, 1 height, 2 width."""
        sections = rope.options.get("mrope_section") or self.sections
        if not self.interleaved:
            return [axis for axis, size in enumerate(sections) for _ in range(size)]
        axes = [0] * (rope.width // 2)
        for axis in (1, 2):
            for at in range(axis, min(3 * sections[axis], len(axes)), 3):
                axes[at] = axis
        return axes


PIXTRAL = Kind(
    "pixtral.image_processing_pil_pixtral.PixtralImageProcessorPil",
    ("vision_tower.", "multi_modal_projector."),
    "image_sizes",
    ("[IMG_BREAK]", "[IMG_END]"),
)
QWEN = Kind(
    "qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil",
    ("visual.",),
    "image_grid_thw",
    sections=(16, 24, 24),
)
INTERLEAVED = replace(QWEN, sections=(11, 11, 10), interleaved=True)
DEEP = replace(INTERLEAVED, sections=(24, 20, 20), deep=True)
GEMMA = Kind(
    "gemma3.image_processing_pil_gemma3.Gemma3ImageProcessorPil",
    ("vision_tower.", "multi_modal_projector."),
    "num_crops",
    written=("<start_of_image>", "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"),
    stand_in=("<image_soft_token>", "<pad>"),
)
GEMMA_4 = Kind(
    "gemma4.image_processing_pil_gemma4.Gemma4ImageProcessorPil",
    ("vision_tower.", "embed_vision."),
    "num_soft_tokens_per_image",
    written=("<|image|>", "<|image><|image|><image|>"),
)
KINDS = {
    "gemma3": GEMMA,
    "gemma4": GEMMA_4,
    "mistral3": PIXTRAL,
    "qwen2_vl": QWEN,
    "qwen2_5_vl": QWEN,
    "qwen3_vl": DEEP,
    "qwen3_vl_moe": DEEP,
    "qwen3_5": INTERLEAVED,
    "qwen3_5_moe": INTERLEAVED,
}
"""By the model_type of a checkpoint."""


def described(kind: object) -> str:
    """How the whole of this model_type reads pictures, in words; empty for none."""
    return "read" if isinstance(kind, str) and kind in KINDS else ""

"""GGUF files with the tower that reads pictures for a model: llama.cpp's `mmproj` files, or the model's own file.

Keys: llama.cpp's tools/mtmd/clip-impl.h; Ollama's convert/ for towers in the file of the text.
"""

from contextlib import suppress
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.gguf.files import GgufFiles, Stamp
from specchat.engine.gguf.header import read_header
from specchat.engine.gguf.ollama import blobs_with

QWEN_3 = "qwen3vl_merger"
TOWERS = {
    "gemma3": {"gemma3": "gemma3"},
    "gemma4": {"gemma4v": "gemma4"},
    "llama": {"pixtral": "mistral3"},
    "mistral3": {"pixtral": "mistral3"},
    "qwen2vl": {"qwen2vl_merger": "qwen2_vl", "qwen2.5vl_merger": "qwen2_5_vl"},
    "qwen25vl": {"qwen2.5vl_merger": "qwen2_5_vl"},
    "qwen3vl": {QWEN_3: "qwen3_vl"},
    "qwen3vlmoe": {QWEN_3: "qwen3_vl_moe"},
    "qwen35": {QWEN_3: "qwen3_5"},
    "qwen35moe": {QWEN_3: "qwen3_5_moe"},
}
"""The model_type of the whole, by the architecture of its text and the projector."""
LAST = {"gemma3": "mm.input_projection.weight", "pixtral": "mm.patch_merger.weight"}
"""A tensor of a projector, which others of its name lack."""
MOST_BESIDE = 32
"""Such files that are looked at."""
CLIP = "clip"
"""Architecture of files with a tower alone."""


def whole_type(files: GgufFiles, tower: GgufFiles) -> str:
    """The model_type of the whole of a text and a tower; empty where its projector is not read."""
    known = TOWERS.get(files.architecture, {})
    if tower.architecture != CLIP:
        return next(iter(known.values()), "")
    name = projector(tower)
    return known.get(name, "") if tower.holds(LAST.get(name, "v.patch_embd.weight")) else ""


def projector(tower: GgufFiles) -> str:
    """The projector that a file names; of a tower in the file of its text the architecture."""
    named = (tower.values.get(f"{CLIP}.{part}projector_type") for part in ("vision.", ""))
    return str(next(filter(None, named), tower.architecture))


def mmproj_file(files: GgufFiles) -> GgufFiles | None:
    """The file with the tower of a model: its own, Ollama's blob for it, or the one near it of the most similar name.

    Of those near it one whose projector is read is preferred, see `whole_type`.
    """
    if f"{files.architecture}.vision.block_count" in files.values:
        return files
    fitting = [other for path in _neighbours(files.path) if (other := _opened(path)) and _fits(other, files)]

    def likeness(other: GgufFiles) -> tuple[bool, float]:
        names = other.path.name.lower(), files.path.name.lower()
        return bool(whole_type(files, other)), SequenceMatcher(None, *names, autojunk=False).ratio()

    return max(fitting, key=likeness, default=None)


def _neighbours(path: Path) -> list[Path]:
    if blob := blobs_with(path).get("projector"):
        return [blob]
    listed = islice(sorted(path.parent.glob("*.gguf")), 8 * MOST_BESIDE)
    return [one for one in listed if "mmproj" in one.name.lower()][:MOST_BESIDE]


def _opened(path: Path) -> GgufFiles | None:
    with suppress(ModelError, OSError):
        stamp = Stamp.of(path)
        return GgufFiles((read_header(path),), (stamp,))
    return None


def _fits(other: GgufFiles, files: GgufFiles) -> bool:
    """True where `other` has a tower for the embeddings of `files`."""
    width = files.headers[0].integer("embedding_length")
    return other.architecture == CLIP and other.headers[0].integer("vision.projection_dim") == width

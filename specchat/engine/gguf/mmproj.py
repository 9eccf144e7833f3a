"""Files with the tower that reads pictures for a GGUF model, beside it: llama.cpp's `mmproj` files, in clip's keys."""

from contextlib import suppress
from difflib import SequenceMatcher
from itertools import islice

from specchat.engine.errors import ModelError
from specchat.engine.gguf.files import GgufFiles, Stamp
from specchat.engine.gguf.header import read_header

PROJECTORS = {"gemma3": "gemma3", "llama": "pixtral", "mistral3": "pixtral"}
"""The projector that is read, by the architecture of the text."""
LAST = {"gemma3": "mm.input_projection.weight", "pixtral": "mm.patch_merger.weight"}
"""A tensor of each, which others of its name lack."""
MOST_BESIDE = 32
"""Such files that are looked at."""


def mmproj_file(files: GgufFiles) -> GgufFiles | None:
    """The file with a tower beside a model: one that fits it, and whose name is most like its name."""
    fitting = list[GgufFiles]()
    if files.architecture not in PROJECTORS:
        return None
    for path in islice(sorted(files.path.parent.glob("*.gguf")), 8 * MOST_BESIDE):
        if "mmproj" in path.name.lower():
            with suppress(ModelError, OSError):
                stamp = Stamp.of(path)
                if _fits(other := GgufFiles((read_header(path),), (stamp,)), files):
                    fitting.append(other)

    def likeness(other: GgufFiles) -> float:
        return SequenceMatcher(None, other.path.name.lower(), files.path.name.lower(), autojunk=False).ratio()

    return max(fitting[:MOST_BESIDE], key=likeness, default=None)


def _fits(other: GgufFiles, files: GgufFiles) -> bool:
    """True where `other` has a tower for the embeddings of `files`."""
    kinds = {other.values.get(f"clip.{part}projector_type") for part in ("", "vision.")}
    width = files.headers[0].integer("embedding_length")
    wanted = PROJECTORS[files.architecture]
    known = other.architecture == "clip" and wanted in kinds and other.holds(LAST[wanted])
    return known and other.headers[0].integer("vision.projection_dim") == width

"""Layers for multi-token prediction in GGUF files: in those of a model, or in a file beside them."""

from collections.abc import Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import islice

from specchat.engine.errors import ModelError
from specchat.engine.gguf.blocks import FileBlock, Places
from specchat.engine.gguf.config import ARCHITECTURES
from specchat.engine.gguf.files import GgufFiles, file_parts
from specchat.engine.gguf.names import layer_sources
from specchat.engine.recipe import Layer, Matrix, Norm

BESIDE = "mtp-"
"""Beginning of the names of files that hold such a layer alone, with tables of the model."""
MOST_BESIDE = 32
"""Such files that are looked at."""
KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
"""Keys of config.json for the number of such layers."""
SAME = ("block_count", "embedding_length")
"""Keys of the architecture that a file beside a model has in common with it."""


def layers(files: GgufFiles | None) -> int:
    """The number of layers for multi-token prediction in files, as their metadata say."""
    return (files.headers[0].integer("nextn_predict_layers") or 0) if files else 0


def nextn_files(files: GgufFiles) -> GgufFiles | None:
    """The files with the layer of a model: its own, or of those beside it the one whose name is most like its name."""
    if layers(files):
        return files
    fitting = []
    for path in islice(sorted(files.path.parent.glob(f"{BESIDE}*.gguf")), MOST_BESIDE):
        with suppress(ModelError, OSError):
            if path == file_parts(path)[0] and _fits(other := GgufFiles.open(path), files):
                fitting.append(other)

    def likeness(other: GgufFiles) -> float:
        names = (other.path.name.removeprefix(BESIDE).lower(), files.path.name.lower())
        return SequenceMatcher(None, *names, autojunk=False).ratio()

    return max(fitting, key=likeness, default=None)


def nextn_sources(files: GgufFiles, number: int, layer: Layer, joined: Matrix, norms: Mapping[str, Norm]) -> Places:
    """The sources of such a layer, block `number` of files; `norms` by the names that they have there."""
    block = FileBlock(files, f"blk.{number}.")
    yield from layer_sources(block, block, layer, ARCHITECTURES[files.architecture])
    yield from block.matrix(joined, ["nextn.eh_proj"])
    for name, norm in norms.items():
        yield from block.norm(norm, f"nextn.{name}")


def _fits(other: GgufFiles, files: GgufFiles) -> bool:
    """True where `other` holds layers after those of `files`, which has none."""
    blocks, width = (other.headers[0].integer(key) or 0 for key in SAME)
    theirs, hidden = (files.headers[0].integer(key) or 0 for key in SAME)
    count = layers(other)
    return count > 0 and other.architecture == files.architecture and (blocks - count, width) == (theirs, hidden)

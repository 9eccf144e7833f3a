"""A GGUF file as a checkpoint, from its header alone. The app imports this, so torch is not imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specchat.clean import one_line
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.formats.gguf import SIZES, Gguf
from specchat.engine.gguf.blocks import StoredAs
from specchat.engine.gguf.config import ARCHITECTURES, settings
from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.mmproj import mmproj_file, whole_type
from specchat.engine.gguf.names import sources, unread
from specchat.engine.gguf.nextn import KEYS, layers, nextn_files
from specchat.engine.recipe import Recipe
from specchat.engine.weights.config import ModelConfig, parsed_settings

DENSE = ("F32", "F16", "BF16")
"""Types of matrices that are not quantised."""


@dataclass(frozen=True)
class GgufCheckpoint:
    """A model in GGUF files that our own decoder runs.

    Attributes:
        settings: in the keys of config.json.
        sources: of the recipe's tensors that the files have, by their names in it.
        nextn: the files with its layer for multi-token prediction; None: there is none.
        mmproj: the file with its tower that reads pictures, which may be of a projector that is not read; None: there
            is none.
    """

    files: GgufFiles
    config: ModelConfig
    settings: dict[str, Any] = field(repr=False)
    sources: Mapping[str, StoredAs] = field(repr=False)
    nextn: GgufFiles | None = field(default=None, repr=False)
    mmproj: GgufFiles | None = field(default=None, repr=False)

    @classmethod
    def open(cls, file: Path) -> "GgufCheckpoint":
        """Read the headers of the model that `file` belongs to.

        Raises:
            ForeignModel: its architecture, a feature of it or a type of its tensors is none of ours.
            ModelError: a file is missing, damaged, cut off or of another model, or a key is wrong.
        """
        return cls.of(GgufFiles.open(file))

    @classmethod
    def of(cls, files: GgufFiles) -> "GgufCheckpoint":
        """The model in files; raises as `open`."""
        nextn = nextn_files(files)
        raw = settings(files) | dict.fromkeys(KEYS, layers(nextn))
        config = parsed_settings(files.path, raw)
        _check_layers(files, config.recipe)
        _check_rotations(files, config.recipe)
        known = ARCHITECTURES[files.architecture]
        found = sources(config.recipe, files, known)
        if name := unread(config.recipe, files, known, found):
            raise ForeignModel(files.path, f"it holds {one_line(name, 60)}, which specchat's decoder does not read")
        there = {name: one for name, one in found.items() if files.holds(one.name)}
        for name in {one.name for one in there.values()} & files.tensors.keys():
            if (kind := files.tensors[name][1].type) not in (*DENSE, *SIZES):
                raise ForeignModel(files.path, f"{name} is of type {kind}, which specchat's decoder does not read")
        mmproj = mmproj_file(files)
        sees = 0
        if mmproj is not None and whole_type(files, mmproj):
            sees = 1 + len({name.split(".")[2] for name in mmproj.tensors if name.startswith("v.deepstack")})
        return cls(files, replace(config, sees=sees), raw, there, nextn, mmproj)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(header.path for header in self.files.headers)

    @property
    def types(self) -> dict[str, str]:
        """The type of each matrix by its name in the recipe, without ".weight"."""
        return {
            name.removesuffix(".weight"): self.files.tensors[one.name][1].type
            for name, one in self.sources.items()
            if one.dims == 2 and name.endswith(".weight")
        }

    @property
    def format(self) -> Gguf | None:
        """The format of quantised matrices; None where all are dense."""
        types = self.types
        return None if set(types.values()) <= {*DENSE} else Gguf(types)

    @property
    def dense(self) -> str:
        """The type that most values in dense matrices have; empty where there are none."""
        counted = dict.fromkeys(DENSE, 0)
        for name in {one.name for one in self.sources.values() if one.dims == 2}:
            stored = self.files.tensors[name][1]
            if stored.type in counted:
                counted[stored.type] += stored.bytes
        most = max(counted, key=lambda kind: counted[kind])
        return most if counted[most] else ""


def _check_layers(files: GgufFiles, recipe: Recipe) -> None:
    """Check that each layer has tensors: memory for an invented number of layers would be planned for minutes.

    Raises:
        ModelError: one has none.
    """
    there = {name.split(".", 2)[1] for name in files.tensors if name.startswith("blk.")}
    if missing := next((layer for layer in range(len(recipe.layers)) if str(layer) not in there), None):
        raise ModelError(
            f"{files.path} has no tensors of layer {missing}, of {len(recipe.layers)} that its header states. "
            "Download it again."
        )


def _check_rotations(files: GgufFiles, recipe: Recipe) -> None:
    """Check that heads rotate as many values as the file says, where their family may not say so.

    Raises:
        ForeignModel: they do not.
    """
    header = files.headers[0]
    stated = {header.integer(f"rope.dimension_count{end}") for end in ("", "_swa")} - {None}
    for mixer in recipe.attentions:
        if mixer.rope and stated and mixer.rope.width not in stated:
            raise ForeignModel(files.path, f"{header.integer('rope.dimension_count')} values of a head are rotated")
    value, key = (header.integer(f"attention.{one}_length") for one in ("value", "key"))
    if value != key and not any(mixer.latent for mixer in recipe.attentions):
        raise ForeignModel(files.path, f"keys have {key} values, and values {value}")

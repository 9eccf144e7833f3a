"""The tower of a checkpoint on disk: among its safetensors, or in a GGUF file beside its text."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json
from specchat.engine.pictures.kinds import KINDS, Kind
from specchat.engine.pictures.mmproj import Mmproj, kind_of_gguf
from specchat.engine.pictures.stored_tower import StoredTower
from specchat.engine.weights.checkpoint import Checkpoint

MISSING = (
    "config.json or preprocessor_config.json is missing or damaged: `specchat models pull` fetches files that are "
    "missing."
)
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
LARGEST = 1120
"""Tokens of the largest picture that a processor with a setting of them makes."""
DENSE = (torch.float32, torch.float16, torch.bfloat16)


class TowerFiles(NamedTuple):
    """A tower on disk.

    Attributes:
        where: named in messages.
        config: transformers' settings of the whole model.
        processor: transformers' class that prepares pictures, with its settings.
        tensors: reads the tensors of tower and projector, by their names in transformers' model; raises ValueError.
    """

    kind: Kind
    where: Path
    config: Any
    processor: Any
    tensors: Callable[[], dict[str, Tensor]]


def kind_of(checkpoint: Checkpoint) -> Any:
    """The model_type of the whole of which a checkpoint is the text, as `KINDS` knows it; None for none."""
    return checkpoint.settings.get("model_type") if checkpoint.gguf is None else kind_of_gguf(checkpoint)


def most_tokens(checkpoint: Checkpoint) -> int:
    """Most tokens of a picture, as the settings of its processor name them; 0: they do not."""
    if kind_of(checkpoint) not in KINDS:
        return 0
    try:
        if checkpoint.mmproj is not None:
            named = [Mmproj(checkpoint).processor()]
        else:
            named = [read_json(path) for name in PROCESSORS if found(path := checkpoint.folder / name)]
    except (ValueError, ModelError):  # told when a picture comes
        return 0
    named += [inner for one in named if isinstance(inner := one.get("image_processor"), dict)]
    wanted = (one.get("max_soft_tokens") for one in named)
    return max((one for one in wanted if isinstance(one, int) and 0 < one <= LARGEST), default=0)


def tower_files(checkpoint: Checkpoint, vocabulary: Mapping[str, int]) -> TowerFiles:
    """Read the settings of a checkpoint's tower.

    Raises:
        ModelError: a file is missing, or its values cannot be used.
    """
    kind = KINDS[kind_of(checkpoint)]
    module, _, name = kind.processor.rpartition(".")
    try:
        of_class = getattr(import_module(f"transformers.models.{module}"), name)
        if checkpoint.mmproj is not None:
            stored = Mmproj(checkpoint)
            config = stored.config(vocabulary)
            return TowerFiles(kind, stored.path, config, of_class(**stored.processor()), stored.tensors)
        from transformers import CONFIG_MAPPING

        settings = checkpoint.settings
        whole = {key: value for key, value in settings.items() if key != "quantization_config"}
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(whole)
        processor = of_class.from_pretrained(checkpoint.folder, local_files_only=True)
    except Exception as error:  # transformers checks these files in its own ways
        words = one_line(str(error), 200) or type(error).__name__
        where, advice = checkpoint.folder, MISSING
        if checkpoint.mmproj is not None:
            where, advice = checkpoint.mmproj.path, "Download it again, or take one that fits the text's file."
        raise ModelError(f"{where}: pictures cannot be read ({words.rstrip('.')}). {advice}") from None
    return TowerFiles(kind, checkpoint.folder, config, processor, lambda: _of_shards(checkpoint.shards, kind.tower))


def tower_values(checkpoint: Checkpoint) -> int:
    """Number of values of a checkpoint's tower and projector.

    Raises:
        ValueError: they are not as a tower's.
    """
    if checkpoint.mmproj is not None:
        tower = StoredTower(checkpoint.mmproj)
        return sum(prod(tower.shape(name)) for name in tower.names)
    stored = _stored(checkpoint.shards, KINDS[kind_of(checkpoint)].tower)
    return sum(prod(file.get_slice(name).get_shape()) for file, name, _ in stored)


def _stored(shards: tuple[Path, ...], beginnings: tuple[str, ...]) -> Iterator[tuple[Any, str, str]]:
    """The tensors of a tower: their open file, with the names there and in transformers' model."""
    for shard in shards:
        with safe_open(shard, framework="pt") as file:
            for stored in file.keys():  # noqa: SIM118 (a handle, not a dict)
                if (name := stored.removeprefix("model.")).startswith(beginnings):
                    yield file, stored, name


def _of_shards(shards: tuple[Path, ...], beginnings: tuple[str, ...]) -> dict[str, Tensor]:
    found = {name: file.get_tensor(stored) for file, stored, name in _stored(shards, beginnings)}
    if other := next((name for name, one in found.items() if one.dtype not in DENSE), None):
        raise ValueError(f"tensor {other} is quantised")
    return found

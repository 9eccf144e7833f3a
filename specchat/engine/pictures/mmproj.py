"""A tower in GGUF files as transformers' classes take it: its settings and its tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from specchat.engine.gguf.mmproj import whole_type
from specchat.engine.pictures.stored_tower import StoredTower
from specchat.engine.pictures.tower_families import FAMILIES
from specchat.engine.weights.checkpoint import Checkpoint

COLOURS = "image_mean", "image_std"


def kind_of_gguf(checkpoint: Checkpoint) -> str | None:
    """The model_type of the whole of which a GGUF checkpoint is the text; None without a tower that is read."""
    if checkpoint.gguf is None or checkpoint.mmproj is None:
        return None
    return whole_type(checkpoint.gguf.files, checkpoint.mmproj) or None


class Mmproj:
    """The tower of a checkpoint with such a file."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Read the names of its tensors.

        Raises:
            ValueError: a number is wrong.
        """
        assert checkpoint.mmproj is not None
        self._kind = str(kind_of_gguf(checkpoint))
        self.path: Path = checkpoint.mmproj.path
        self._family, self._text, self._tower = FAMILIES[self._kind], checkpoint, StoredTower(checkpoint.mmproj)

    def config(self, vocabulary: Mapping[str, int]) -> Any:
        """transformers' settings of the whole model.

        Raises:
            ValueError: a number or a tensor is missing, or the vocabulary lacks the token of pictures.
        """
        from transformers import CONFIG_MAPPING

        of, tower, text = self._family, self._tower, self._text.settings
        if of.mark not in vocabulary:
            raise ValueError(f"the text's vocabulary lacks the token {of.mark}")
        vision = {key: tower.number(name) for key, name in of.keys.items()} | of.vision(tower)
        vision["intermediate_size"] = tower.mlp_width
        widths = {"hidden_size": text["hidden_size"], "rms_norm_eps": text.get("rms_norm_eps", 1e-6)}
        whole: Any = CONFIG_MAPPING[self._kind]
        settings = {"text_config": widths, "vision_config": vision} | of.whole(tower)
        return whole(**settings, image_token_id=vocabulary[of.mark])

    def processor(self) -> dict[str, Any]:
        """Settings of transformers' processor."""
        found = {key: listed for key in COLOURS if (listed := self._tower.entries(key))}
        return self._family.processor(self._tower) | found

    def tensors(self) -> dict[str, Tensor]:
        """The tensors in float32, by their names in transformers' model.

        Raises:
            ValueError: one is missing, or of a type or a shape that is not read.
            ModelError: the file changed since it was opened.
        """
        try:
            arranged = self._family.arranged(self._tower, self._tower.tensors())
        except KeyError as error:
            raise ValueError(f"{error.args[0]} is missing") from None
        except RuntimeError as error:
            raise ValueError(str(error)) from None
        return {theirs: one for name, one in arranged.items() if (theirs := self._name(name))}

    def _name(self, name: str) -> str:
        names, begin = self._family.names, ""
        for part, theirs in self._family.parts.items():
            if name.startswith(f"{part}."):
                number, _, name = name.removeprefix(f"{part}.").partition(".")
                begin = f"{theirs}.{self._tower.numbers(part).index(int(number))}."
        if name in names:
            return begin + names[name]
        inner, _, last = name.rpartition(".")
        return f"{begin}{names.get(inner, inner)}.{last}"

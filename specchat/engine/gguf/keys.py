"""Keys of the architecture of a GGUF file, checked for their kind."""

import struct
from typing import Any

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.families.parts.settings import MOST_LAYERS
from specchat.engine.gguf.files import GgufFiles

FULL, SLIDING, LINEAR, CONV = "full_attention", "sliding_attention", "linear_attention", "conv"
"""Kinds of layers in "layer_types"."""
Settings = dict[str, Any]
"""Keys of config.json."""
OLLAMA = {
    "attention.temperature_scale": "rope.scaling_beta",
    "rope.freq_base": "rope.global.freq_base",
    "rope.freq_base_swa": "rope.local.freq_base",
    "rope.scaling.yarn_beta_fast": "rope.scaling.beta_fast",
    "rope.scaling.yarn_beta_slow": "rope.scaling.beta_slow",
    "rope.scaling.yarn_log_multiplier": "rope.scaling.mscale_all_dim",
}
"""Names in files of Ollama's converter, by llama.cpp's."""


class ArchitectureKeys:
    """Keys of a file's architecture, checked for their kind.

    Attributes:
        layers: those of the model, without what predicts further tokens.
    """

    def __init__(self, files: GgufFiles) -> None:
        """Read the number of layers.

        Raises:
            ModelError: it is missing or too large.
        """
        self.files = files
        self._prefix = f"{files.architecture}."
        self.layers = (self.integer("block_count") or 0) - (self.integer("nextn_predict_layers") or 0)
        if not 0 < self.layers <= MOST_LAYERS:
            raise ModelError(f"{files.path}: {self._prefix}block_count is {self.layers}, not from 1 to {MOST_LAYERS}.")

    def integer(self, key: str) -> int | None:
        """A whole number, or the one that all layers have; None where there is none."""
        value = self.files.values.get(f"{self._prefix}{key}")
        if value is None:
            listed = set(self.each(key))
            return listed.pop() if len(listed) == 1 else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelError(f"{self.files.path}: {self._prefix}{key} is {one_line(repr(value), 43)}, no whole number.")
        return value

    def number(self, key: str) -> float | None:
        """A real number, in the fewest digits that its float32 has; None where there is none."""
        names = (f"{self._prefix}{one}" for one in (key, OLLAMA.get(key, key)))
        value = next((self.files.values[name] for name in names if name in self.files.values), None)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelError(f"{self.files.path}: {self._prefix}{key} is {one_line(repr(value), 43)}, no number.")
        return shortest(float(value))

    def text(self, key: str) -> str:
        """A text; empty where there is none."""
        value = self.files.values.get(f"{self._prefix}{key}", "")
        return value if isinstance(value, str) else ""

    def switch(self, key: str) -> bool:
        return self.files.values.get(f"{self._prefix}{key}") is True

    def each(self, key: str) -> list[int]:
        """A whole number or truth value for each layer; empty where the file has no list.

        Raises:
            ModelError: there are fewer, or others.
        """
        if (name := f"{self._prefix}{key}") not in self.files.headers[0].lengths:
            return []
        found = [int(one) for one in self.files.headers[0].entries(name) if isinstance(one, int)]
        if len(found) < self.layers:
            raise ModelError(f"{self.files.path}: {name} has {len(found)} whole numbers for {self.layers} layers.")
        return found[: self.layers]

    def has(self, name: str, layer: int = 0) -> bool:
        """True where the file holds a tensor of a layer."""
        return f"blk.{layer}.{name}" in self.files.tensors

    def anywhere(self, name: str) -> bool:
        """True where the file holds a tensor of any layer."""
        return any(self.has(name, layer) for layer in range(self.layers))

    @property
    def head_dim(self) -> int:
        """Values of a head, as far as all layers have the same."""
        heads = max(self.each("attention.head_count"), default=0) or self.integer("attention.head_count") or 1
        return self.integer("attention.key_length") or (self.integer("embedding_length") or 0) // heads

    @property
    def window(self) -> int:
        return self.integer("attention.sliding_window") or 0

    def kinds(self, usual: int) -> list[str]:
        """SLIDING or FULL for each layer: every so many are full, `usual` where the file does not say."""
        listed = self.each("attention.sliding_window_pattern")
        every = self.integer("attention.sliding_window_pattern") if not listed else None
        if not listed:
            listed = [(layer + 1) % max(1, every or usual) for layer in range(self.layers)]
        return [SLIDING if slides else FULL for slides in listed]


def shortest(value: float) -> float:
    """The number of fewest digits that has the same float32; files hold 1e-6 as 9.99999997e-07."""
    try:
        stored = struct.pack("<f", value)
    except OverflowError:
        return value
    return next((near for n in range(1, 10) if struct.pack("<f", near := float(f"{value:.{n}g}")) == stored), value)

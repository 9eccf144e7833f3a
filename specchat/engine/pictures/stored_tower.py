"""The keys and tensors of a tower in a GGUF file of llama.cpp's or Ollama's converter, in llama.cpp's names.

Keys, names and layouts: llama.cpp's tools/mtmd/clip-impl.h and its converter. Ollama's convert/ writes the tower into
the file of the text, under other names.
"""

import re
from math import prod
from typing import Any

from torch import Tensor

from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.mmproj import CLIP
from specchat.engine.gguf.tensors import GgufTensors

ELSEWHERE = ("v.token_embd.", "v.clamp_data", "mm.a.")
"""Beginnings of names of what the text has, of what other tensors say, too, and of towers that listen."""
OLLAMA = {
    r"v\.(patch_embedding|patch_embed|patch_conv|patch_embd_0)": "v.patch_embd",
    r"v\.patch_embd_1\.weight": "v.patch_embd.weight.1",
    r"v\.(position_embedding|pos_embed)": "v.position_embd",
    r"v\.encoder_norm": "v.pre_ln",
    r"v\.(post_layernorm|merger\.norm|merger\.ln_q)": "v.post_ln",
    r"v\.merger\.(linear_fc1|mlp\.0)": "mm.0",
    r"v\.merger\.(linear_fc2|mlp\.2)": "mm.2",
    r"v\.deepstack(_merger)?\.(\d+)": r"v.deepstack.\2",
    r"mm\.mm_": "mm.",
    r"mm\.linear_": "mm.",
    r"mm\.norm": "mm.input_norm",
    r"mm\.patch_merger\.merging_layer": "mm.patch_merger",
    r"(v\.blk\.\d+)\.(layer_norm1|norm1|attn_norm)": r"\1.ln1",
    r"(v\.blk\.\d+)\.(layer_norm2|norm2|ffn_norm)": r"\1.ln2",
    r"(v\.blk\.\d+)\.attn_output": r"\1.attn_out",
    r"(v\.blk\.\d+)\.mlp\.(linear_)?fc1": r"\1.ffn_up",
    r"(v\.blk\.\d+)\.mlp\.(linear_)?fc2": r"\1.ffn_down",
    r"(v\.deepstack\.\d+)\.linear_": r"\1.",
}
"""llama.cpp's beginnings of names, by Ollama's."""


class StoredTower:
    """A tower in GGUF files.

    Attributes:
        within: the text is in the same file, which Ollama wrote.
        names: llama.cpp's of its tensors, each with the one in the file.
    """

    def __init__(self, files: GgufFiles) -> None:
        self._files = files
        self.within = files.architecture != CLIP
        of_tower = [n for n in files.tensors if n.startswith(("v.", "mm.")) and not n.startswith(ELSEWHERE)]
        self.names = {self._plain(name): name for name in of_tower}
        rows, columns = self.shape("v.blk.0.ffn_up.weight")
        # Older converters took the first product of an MLP for the one down.
        if rows == self.number("embedding_length") != columns:
            others = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
            self.names = {
                re.sub("ffn_up|ffn_down", lambda found: others[found[0]], plain): name
                for plain, name in self.names.items()
            }

    def number(self, key: str, usual: float = 0) -> Any:
        """A number of the tower, more than 0; `usual` where the file leaves it out.

        Raises:
            ValueError: it is missing, or another.
        """
        full = f"{self._files.architecture}.vision.{key}"
        value = self._files.values.get(full, usual)
        if isinstance(value, int | float) and value > 0:
            return value
        raise ValueError(f"{full} is {value or 'missing'}")

    def entries(self, key: str) -> list[Any]:
        """A list of the tower; empty where the file leaves it out."""
        return self._files.headers[0].entries(f"{self._files.architecture}.vision.{key}")

    def uses(self, activation: str) -> bool:
        """True where the file names an activation."""
        return self._files.values.get(f"{CLIP}.use_{activation}") is True

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            ValueError: there is none.
        """
        if name in self.names:
            return self._files.shape(self.names[name])
        raise ValueError(f"{name} is missing")

    @property
    def mlp_width(self) -> int:
        """Values between the products of an MLP, which the files of some families state wrongly."""
        return prod(self.shape("v.blk.0.ffn_up.weight")) // int(self.number("embedding_length"))

    def numbers(self, part: str) -> list[int]:
        """The numbers of the elements of a list of parts such as `v.blk`."""
        found = (re.match(rf"{re.escape(part)}\.(\d+)\.", name) for name in self.names)
        return sorted({int(one[1]) for one in found if one})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors in float32.

        Raises:
            ValueError: one is of a type that is not read.
            ModelError: the file changed since it was opened.
        """
        with GgufTensors(self._files, {}) as stored:
            return {plain: stored.in_float32(name) for plain, name in self.names.items()}

    def _plain(self, name: str) -> str:
        if self.within:
            for theirs, ours in OLLAMA.items():
                name = re.sub(f"^{theirs}", ours, name)
        return name

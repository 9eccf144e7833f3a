"""A checkpoint's folder; its settings are read and checked once."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from specchat.engine.errors import ModelError
from specchat.engine.files import read_json, stored_tensors, weight_files
from specchat.engine.foreign import checked
from specchat.engine.formats.format import Format
from specchat.engine.protocol.pair import Quant, Wanted
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.config import ModelConfig, parse_config
from specchat.engine.weights.own_head import with_own_head
from specchat.engine.weights.written import StoredWeights, stored_format

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk; `weights.Weights` reads its tensors.

    Attributes:
        dtype: of the unquantised weights; None where it is not float32, float16 or bfloat16.
        format: of the matrices in the files; None: dense.
        shards: the safetensors files.
        settings: config.json, for parts beside the model.
        drafts: token_ids that a draft may propose, ascending; its head keeps their rows only. None: all.
    """

    folder: Path
    config: ModelConfig
    dtype: torch.dtype | None
    format: Format | None
    shards: tuple[Path, ...]
    settings: dict[str, Any] = field(repr=False, compare=False)
    drafts: tuple[int, ...] | None = None

    @classmethod
    def open(cls, folder: Path) -> "Checkpoint":
        """Read and check the settings in `folder`, and find its weights.

        Raises:
            ModelError: files missing, damaged, pickled, or of an unknown model or quantisation.
        """
        path = folder / "config.json"
        raw = read_json(path)
        config = parse_config(folder, raw)
        written = checked(StoredWeights, raw, str(path))
        settings = written.quantization_config
        format = None if settings is None else stored_format(path, settings, config)
        shards = weight_files(folder)
        if format is not None and format.of_experts and not any(stored_tensors(shard).packed for shard in shards):
            format = None  # a 16-bit derivative, whose settings still name one
        may_be_tied = isinstance(raw.get("text_config"), dict) and raw.get("tie_word_embeddings") is not False
        config = replace(config, recipe=with_own_head(config.recipe, shards, may_be_tied))
        return cls(
            folder=folder,
            config=config,
            dtype=DTYPES.get(written.dtype or written.torch_dtype or ""),
            format=format,
            shards=shards,
            settings=raw,
        )

    @property
    def quant(self) -> Quant | None:
        """Quantisation of the layers' matrices in the files; None: none."""
        return self.format.quant if self.format else None

    @property
    def also_sees(self) -> bool:
        """True where the checkpoint reads images too, of which the model here is the text part."""
        return self.settings.get("model_type") != self.config.family

    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights.

        Raises:
            ModelError: it is missing or damaged.
        """
        return Tokenizer.read(self.folder, self.config.vocab)

    def kept(self, asked: Wanted | None) -> Quant | None:
        """Quantisation of the layers' matrices in memory: as stored, or at load as `asked`.

        Raises:
            ModelError: the two contradict each other.
        """
        if self.quant is not None and asked not in (None, "none", self.quant):
            raise ModelError(
                f"{self.folder} is quantised as {self.quant} already and cannot become {asked}. Leave quant out."
            )
        return self.quant or (None if asked == "none" else asked)

"""A checkpoint, a folder or a GGUF file; its settings are read and checked once."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import read_json, stored_tensors, weight_files
from specchat.engine.foreign import checked
from specchat.engine.formats.format import Format
from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.header import TOKENS_KEY
from specchat.engine.gguf.tensors import DENSE, GgufTensors
from specchat.engine.gguf.token_lists import metadata_of
from specchat.engine.gguf.tokenizer import stop_tokens, tokenizer_files
from specchat.engine.protocol.pair import Activations, Quant, QuantisedHead, Wanted, is_gguf
from specchat.engine.recipe import Recipe
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.config import ModelConfig, parse_config
from specchat.engine.weights.gguf import GgufCheckpoint
from specchat.engine.weights.written import StoredWeights, stored_format

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
BEGINNINGS = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")
"""Beginnings of the names of heads and embeddings."""
HEAD, TABLE = "lm_head", "embed_tokens"
PARTS = ("weight", "qweight", "weight_packed")
"""Ends of a matrix's name, of which the last ones are quantised."""
ROWS = 4096
"""Rows that are compared at a time."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk; `weights.Weights` reads its tensors.

    Attributes:
        folder: with the files, or the first GGUF file.
        dtype: of the unquantised weights; None where it is not float32, float16 or bfloat16.
        format: of the matrices in the files; None: dense.
        shards: the safetensors or GGUF files.
        settings: config.json, for parts beside the model.
        gguf: the tensors of GGUF files.
        nextn: GGUF files with the model's layer for multi-token prediction; None: there are none.
        mmproj: the GGUF file with the tower that reads pictures for one, as `GgufCheckpoint.mmproj`.
        drafts: token_ids that a draft may propose, ascending; its head keeps their rows only. None: all.
        activations: form of the rows that its matrices multiply, as loading chose it for a CPU.
        head: form in which a CPU holds its dense head, beside the embeddings where these are tied; None: as stored.
    """

    folder: Path
    config: ModelConfig
    dtype: torch.dtype | None
    format: Format | None
    shards: tuple[Path, ...]
    settings: dict[str, Any] = field(repr=False, compare=False)
    drafts: tuple[int, ...] | None = None
    activations: Activations = "float32"
    head: QuantisedHead | None = None
    gguf: GgufTensors | None = field(default=None, repr=False, compare=False)
    nextn: GgufFiles | None = field(default=None, repr=False, compare=False)
    mmproj: GgufFiles | None = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path) -> "Checkpoint":
        """Read and check the settings in `folder`, or in a GGUF file, and find the weights.

        Raises:
            ModelError: files missing, damaged, pickled, or of an unknown model or quantisation.
        """
        if folder.is_file() or (is_gguf(folder.name) and not folder.exists()):
            return cls._of_gguf(GgufCheckpoint.open(folder))
        path = folder / "config.json"
        raw = read_json(path)
        config = parse_config(folder, raw)
        written = checked(StoredWeights, raw, str(path))
        settings = written.quantization_config
        format = None if settings is None else stored_format(path, settings)
        shards = weight_files(folder)
        if format is not None and format.of_experts and not any(stored_tensors(shard).packed for shard in shards):
            format = None  # a 16-bit derivative, whose settings still name one
        may_be_tied = isinstance(raw.get("text_config"), dict) and raw.get("tie_word_embeddings") is not False
        config = replace(config, recipe=_with_own_head(config.recipe, shards, may_be_tied))
        return cls(
            folder=folder,
            config=config,
            dtype=DTYPES.get(written.dtype or written.torch_dtype or ""),
            format=format,
            shards=shards,
            settings=raw,
        )

    @classmethod
    def _of_gguf(cls, model: GgufCheckpoint) -> "Checkpoint":
        config, header = model.config, model.files.headers[0]
        if TOKENS_KEY in header.lengths:
            ends = stop_tokens(metadata_of(header), header.path)
            config = replace(config, eos=config.eos | {token for token in ends if token < config.vocab})
        return cls(
            folder=model.files.path,
            config=config,
            dtype=DENSE.get(model.dense, torch.float16),
            format=model.format,
            shards=model.paths,
            settings=model.settings,
            gguf=GgufTensors(model.files, model.sources),
            nextn=model.nextn,
            mmproj=model.mmproj,
        )

    @property
    def quant(self) -> Quant | None:
        """Quantisation of the layers' matrices in the files; None: none."""
        return self.format.quant if self.format else None

    @property
    def also_sees(self) -> bool:
        """True where the checkpoint reads images too, of which the model here is the text part."""
        return self.config.sees > 0

    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights, or in the GGUF file.

        Raises:
            ModelError: it is missing or damaged.
        """
        if self.gguf is None:
            return Tokenizer.read(self.folder, self.config.vocab)
        files = tokenizer_files(metadata_of(self.gguf.files.headers[0]), self.folder)
        return Tokenizer(files.backend, files.file, files.special, files.template, self.config.vocab)

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


def _with_own_head(recipe: Recipe, shards: Sequence[Path], may_be_tied: bool) -> Recipe:
    """`recipe` with the head that the safetensors files have; without one a model that `may_be_tied` is.

    As in transformers, a head that is stored counts.

    Raises:
        ModelError: a file is damaged or cut short.
    """
    wanted = {f"{begin}{name}.{part}" for begin in BEGINNINGS for name in (HEAD, TABLE) for part in PARTS}
    with ExitStack() as stack:
        found: dict[str, Any] = {}
        for shard in shards:
            try:
                file = stack.enter_context(safe_open(shard, framework="pt"))
            except (SafetensorError, OSError) as error:
                words = one_line(str(error))
                raise ModelError(f"{shard} is damaged or cut short ({words}). Download the checkpoint again.") from None
            found |= {name: file.get_slice(name) for name in wanted.intersection(file.keys())}
        heads = [part for name, part in found.items() if HEAD in name]
        tables = [part for name, part in found.items() if TABLE in name]
        if recipe.tied and heads and not (tables and _same(heads[0], tables[0])):
            return replace(recipe, head=replace(recipe.embed, names=(HEAD,)))
    return replace(recipe, head=recipe.embed) if may_be_tied and not heads else recipe


def _same(one: Any, other: Any) -> bool:
    """True if two stored matrices have the same values."""
    if one.get_shape() != other.get_shape() or one.get_dtype() != other.get_dtype():
        return False
    count = (one.get_shape() or [0])[0]
    return all(torch.equal(one[n : n + ROWS], other[n : n + ROWS]) for n in range(0, count, ROWS))

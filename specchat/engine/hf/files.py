"""A checkpoint for transformers: checks its files, then loads the network."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, BitsAndBytesConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, get_hf_quantizer
from transformers.utils import logging

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.families.parts.settings import Ends
from specchat.engine.files import read_json, weight_files
from specchat.engine.foreign import Count, MaybeCount, checked, shown
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.hf.known import unknown_quantisation, unknown_type
from specchat.engine.hf.positions import reach_of
from specchat.engine.protocol.pair import DEFAULT_CONTEXT, QUANT_BITS, Wanted
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.written import quantisation_of

MAX_MESSAGE = 300
"""Length to which transformers' messages are cut."""
MAX_NAMES = 3
"""Missing weights that a message names."""
MAX_LAYERS = 10_000
FLOATING = ("F64", "F32", "F16", "BF16")
"""safetensors' words for numbers that mean what they are."""


class _Text(Ends):
    """Settings that are checked here, since transformers accepts values of any type for them."""

    vocab_size: Count
    hidden_size: MaybeCount = None
    max_position_embeddings: MaybeCount = None


@dataclass(frozen=True)
class HfFiles:
    """A checked checkpoint.

    Attributes:
        config: transformers' own.
        size: bytes of the weights in the files.
        bits: of an unquantised weight; 32 if the checkpoint does not say.
        trusted: True if the checkpoint's own code may run.
    """

    folder: Path
    config: Any
    size: int
    bits: int
    trusted: bool

    @classmethod
    def open(cls, folder: Path, trusted: bool) -> "HfFiles":
        """Read and check the settings in `folder`, and find its weights.

        Raises:
            ModelError: files are missing, damaged or pickled, or this transformers does not run the model, or only with
                code from the checkpoint that is not trusted.
        """
        _silence()
        path = folder / "config.json"
        raw = read_json(path)
        shards = weight_files(folder)
        kind, programs = raw.get("model_type"), "auto_map" in raw
        known = isinstance(kind, str) and kind in CONFIG_MAPPING
        if not known and programs and not trusted:
            raise ModelError(
                f"{path}: model_type {_shown(kind)} runs by programs that come with the checkpoint, and none is run "
                'unasked. Read them, then set backend = "hf" and trust_remote_code = true for the pair in models.toml.'
            )
        if not known and not programs:
            raise ModelError(f"{path}: {unknown_type(kind)}.")
        if programs and trusted and not any(folder.glob("*.py")):
            raise ModelError(
                f"{folder} lacks the programs that come with the checkpoint, and none is ever downloaded. Download the "
                "whole repository yourself, read them, and give its folder as path."
            )
        _check_layers(raw, str(path))
        if not (programs and trusted) and (why := unknown_quantisation(raw, AUTO_QUANTIZATION_CONFIG_MAPPING)):
            raise ModelError(f"{path}: {why}.")
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trusted, local_files_only=True)
        except Exception as error:  # damaged settings raise anything
            raise ModelError(f"{path} cannot be used: transformers says: {_words(error)}") from None
        text = config.get_text_config(decoder=True)
        checked(_Text, {key: getattr(text, key, None) for key in _Text.model_fields}, str(path))
        dtype = text.dtype or config.dtype
        bits = 8 * dtype.itemsize if isinstance(dtype, torch.dtype) else 32
        for shard in shards:
            _check_head(shard, quantised=bool(quantisation_of(raw)) or (programs and trusted))
        files = cls(folder, config, sum(shard.stat().st_size for shard in shards), bits, trusted)
        files._auto_class()
        return files

    @property
    def quantised(self) -> bool:
        """True if the files hold quantised weights."""
        return getattr(self.config, "quantization_config", None) is not None

    @property
    def own_programs(self) -> bool:
        """True if the checkpoint's own code runs."""
        return self.trusted and hasattr(self.config, "auto_map")

    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights.

        Raises:
            ModelError: it is missing or damaged.
        """
        return Tokenizer.read(self.folder, self.config.get_text_config(decoder=True).vocab_size)

    @property
    def max_context(self) -> int | None:
        """Longest sequence in tokens; None if it is unbounded."""
        found = reach_of(self.config.get_text_config(decoder=True))
        return found[1] if found else None

    def context(self, requested: int | None) -> int:
        """Tokens of the KV cache for the pair's `context` setting, or the default."""
        usual, longest = reach_of(self.config.get_text_config(decoder=True)) or (DEFAULT_CONTEXT, requested)
        return min(requested, longest or requested) if requested else min(DEFAULT_CONTEXT, usual)

    def weight_bytes(self, on_gpu: bool, quant: Wanted | None) -> int:
        """Bytes of the loaded weights; quantising leaves embeddings and head as they are."""
        widened = 32 if not on_gpu and not self.quantised else self.bits
        if quant not in QUANT_BITS:
            return self.size * widened // self.bits
        text = self.config.get_text_config(decoder=True)
        matrices = 1 if getattr(text, "tie_word_embeddings", True) else 2
        kept: int = matrices * text.vocab_size * getattr(text, "hidden_size", 0)
        layers = max(0, self.size * 8 // self.bits - kept)
        return (layers * QUANT_BITS[quant] + kept * widened) // 8

    def check(self, device: str, quant: Wanted | None) -> None:
        """Check the requirements of quantised weights.

        Raises:
            ModelError: a package or a GPU is missing, or the checkpoint is quantised already.
        """
        if quant in QUANT_BITS and self.quantised:
            raise ModelError(f"{self.folder} is quantised already and cannot become {quant}. Leave quant out.")
        if quant not in QUANT_BITS and not self.quantised:
            return
        requested = _bitsandbytes(quant) if quant in QUANT_BITS else None
        try:
            get_hf_quantizer(deepcopy(self.config), requested, {"": device}, True, {})  # type: ignore[no-untyped-call]
        except Exception as error:  # each method has its own
            raise ModelError(f"{self.folder} cannot be loaded: transformers says: {_words(error)}") from None

    def load(self, device: str, quant: Wanted | None) -> Any:
        """Load the network in evaluation mode on `device`, with layers quantised as `quant`.

        On the CPU 16-bit weights become float32: few processors multiply 16 bits faster, and rows of different passes
        then differ less.

        Raises:
            ModelError: weights are missing or damaged.
        """
        options: dict[str, Any] = {"dtype": "auto" if device != "cpu" or self.quantised else torch.float32}
        if quant in QUANT_BITS:
            options["quantization_config"] = _bitsandbytes(quant)
        placed = self.quantised or quant in QUANT_BITS
        if placed:
            # Only quantised weights need accelerate, which places them while loading.
            options["device_map"] = {"": device}
        try:
            network, loading = self._auto_class().from_pretrained(
                self.folder,
                config=self.config,
                trust_remote_code=self.trusted,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
        except Exception as error:  # damaged files raise anything
            if ran_out(error):
                raise
            raise ModelError(f"{self.folder} cannot be loaded: transformers says: {_words(error)}") from None
        if missing := sorted(loading["missing_keys"]):
            some = ", ".join(missing[:MAX_NAMES]) + (", ..." if len(missing) > MAX_NAMES else "")
            raise ModelError(
                f"{self.folder}: {len(missing)} weights are missing from its files ({one_line(some, MAX_MESSAGE)}). "
                "Download the checkpoint again."
            )
        return network.eval() if placed else network.eval().to(device)

    def _auto_class(self) -> Any:
        """The class that builds the network; a multimodal one is built whole and used for text."""
        kind = type(self.config)
        programs = getattr(self.config, "auto_map", {}) if self.trusted else {}
        if kind in MODEL_FOR_CAUSAL_LM_MAPPING or "AutoModelForCausalLM" in programs:
            return AutoModelForCausalLM
        if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
            return AutoModelForImageTextToText
        raise ModelError(f"{self.folder}: model_type {_shown(self.config.model_type)} is none that writes text.")


def _bitsandbytes(quant: Wanted | None) -> BitsAndBytesConfig:
    if quant == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    four: dict[str, Any] = {"bnb_4bit_quant_type": quant, "bnb_4bit_use_double_quant": True}
    return BitsAndBytesConfig(load_in_4bit=True, **four)  # type: ignore[no-untyped-call]


def _check_layers(settings: dict[str, Any], where: str) -> None:
    """Refuse absurd numbers of layers, for which transformers builds a list before it checks anything.

    Raises:
        ModelError: a number of layers in `settings`, at any depth, exceeds MAX_LAYERS.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            _check_layers(value, where)
        elif "layer" in key and isinstance(value, int) and value > MAX_LAYERS:
            raise ModelError(
                f"{where}: {one_line(key, 60)} is {shown(value)}, and no model has more than {MAX_LAYERS:,}."
            )


def _check_head(shard: Path, quantised: bool) -> None:
    """Read the header of a safetensors file, which gives its length, and the dtypes of weights.

    Raises:
        ModelError: the file is damaged, or has weights that only a quantisation explains, and none is told.
    """
    try:
        with safe_open(shard, framework="pt") as file:
            weights = [name for name in file.keys() if name.endswith(".weight")]  # noqa: SIM118
            packed = (name for name in weights if file.get_slice(name).get_dtype() not in FLOATING)
            if not quantised and (name := next(packed, "")):
                raise ModelError(
                    f"{shard}: {one_line(name, 80)} is quantised, and config.json does not say how. Take the "
                    "unquantised checkpoint, or a GGUF file of the model, which llama.cpp runs."
                )
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{shard} cannot be read ({one_line(str(error), MAX_MESSAGE)}). Download it again.") from None


def _silence() -> None:
    """Keep transformers from writing to the screen."""
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _words(error: Exception) -> str:
    words = one_line(str(error), MAX_MESSAGE) or type(error).__name__
    return words if words.endswith(".") else f"{words}."


def _shown(kind: object) -> str:
    return one_line(repr(kind), 60)

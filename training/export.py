"""Writes a model in Hugging Face's layout, so that any Llama loader can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from specchat.engine import families
from training.model import CONTEXT, Llama, Shape
from training.tokenizer import BOS, END, PAD, SPECIAL, TEMPLATE, token_id


def configuration(shape: Shape, tokenizer: Tokenizer) -> dict[str, Any]:
    """config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": families.plain().model_type,
        **shape.as_dict(),
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "bos_token_id": token_id(tokenizer, BOS),
        "eos_token_id": token_id(tokenizer, END),
        "pad_token_id": token_id(tokenizer, PAD),
        "torch_dtype": "float16",
        "use_cache": True,
    }


def _tokenizer_configuration(tokenizer: Tokenizer) -> dict[str, Any]:
    """tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [name for name in SPECIAL if name not in (BOS, END, PAD)],
        "added_tokens_decoder": {
            str(token_id(tokenizer, name)): {
                "content": name,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for name in SPECIAL
        },
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "model_max_length": CONTEXT,
    }


def _replace(path: Path, text: str) -> None:
    """Write a text file atomically."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.replace(path)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def export(model: Llama, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model's five files, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {"bos_token_id": token_id(tokenizer, BOS), "eos_token_id": token_id(tokenizer, END)}
    weights = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in model.state_dict().items()}
    new = folder / ".model.new"
    save_file(weights, new, metadata={"format": "pt"})
    new.chmod(0o644)
    new.replace(folder / "model.safetensors")
    _replace(folder / "tokenizer.json", tokenizer.to_str(pretty=False))
    _replace(folder / "config.json", _json(configuration(model.shape, tokenizer)))
    _replace(folder / "tokenizer_config.json", _json(_tokenizer_configuration(tokenizer)))
    generation = {**ids, "pad_token_id": token_id(tokenizer, PAD), "do_sample": False, "max_new_tokens": 512}
    _replace(folder / "generation_config.json", _json(generation))


def load(folder: Path, device: str = "cpu") -> Llama:
    """Load an exported model in float32."""
    stored = json.loads((folder / "config.json").read_text("utf-8"))
    shape = Shape(**{name: stored[name] for name in Shape.__dataclass_fields__})
    model = Llama(shape)
    model.load_state_dict({name: value.float() for name, value in load_file(folder / "model.safetensors").items()})
    return model.to(device).eval()

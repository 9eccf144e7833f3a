"""A model that says a given list of tokens, whatever it is asked: each token leads to the next."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tests.engine.tiny import config


def scripted(
    folder: Path, backend: Tokenizer, script: Sequence[int], settings: dict[str, Any], template: str, **changes: Any
) -> Path:
    """Write a checkpoint of one layer; `script` begins after any token that is not in it, and has each token once.

    `settings` are those of tokenizer_config.json, `changes` those of config.json.
    """
    assert len(set(script)) == len(script)
    vocab = backend.get_vocab_size()
    hidden = -(-(len(script) + 1) // 64) * 64
    embedded, head = torch.zeros(vocab, hidden), torch.zeros(vocab, hidden)
    embedded[:, 0] = 1.0
    for place, token in enumerate(script):
        embedded[token] = torch.nn.functional.one_hot(torch.tensor(place + 1), hidden)
        head[token, place] = 4.0
    weights = {"model.embed_tokens.weight": embedded, "lm_head.weight": head, "model.norm.weight": torch.ones(hidden)}
    layer = "model.layers.0."
    for name in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{layer}{name}.weight"] = torch.ones(hidden)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        weights[f"{layer}self_attn.{name}.weight"] = torch.zeros(hidden, hidden)
    for name in ("gate_proj", "up_proj"):
        weights[f"{layer}mlp.{name}.weight"] = torch.zeros(64, hidden)
    weights[f"{layer}mlp.down_proj.weight"] = torch.zeros(hidden, 64)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shape = {
        "hidden_size": hidden,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": hidden // 32,
    }
    shape |= dict.fromkeys(("num_attention_heads", "num_key_value_heads"), hidden // 32)
    shape |= {"vocab_size": vocab, "tie_word_embeddings": False}
    end = {"max_position_embeddings": 4096, "eos_token_id": None, "bos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config(**shape | end | changes)))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": template}))
    return folder

"""Random heads, written with the keys and settings of those that are published."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig

from tests.engine.tiny import FAMILIES, VOCAB, checkpoint

HIDDEN = 64


def written(folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor], name: str = "model") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / f"{name}.safetensors")
    return folder


def matrix(g: torch.Generator, outputs: int, inputs: int, scale: float = 1.6) -> Tensor:
    return torch.randn(outputs, inputs, generator=g) * scale / inputs**0.5


def medusa(
    folder: Path, heads: int = 5, blocks: int = 1, hidden: int = HIDDEN, vocab: int = VOCAB, stored: int | None = None
) -> Path:
    """FasterDecoding's layout; settings tell of two heads as theirs do, and of each head `stored` blocks are there."""
    g = torch.Generator().manual_seed(11)
    tensors: dict[str, Tensor] = {}
    for head in range(heads):
        for block in range(blocks if stored is None else stored):
            tensors[f"{head}.{block}.linear.weight"] = matrix(g, hidden, hidden)
            tensors[f"{head}.{block}.linear.bias"] = 0.1 * torch.randn(hidden, generator=g)
        tensors[f"{head}.{blocks}.weight"] = matrix(g, vocab, hidden)
    settings = {"medusa_num_heads": 2, "medusa_num_layers": blocks, "base_model_name_or_path": "someone/target"}
    return written(folder, settings, tensors, "medusa_lm_head")


def settings(**changes: Any) -> dict[str, Any]:
    """config.json of an EAGLE head: a Llama of one layer."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
        "hidden_act": "silu",
    } | changes


def layer(g: torch.Generator, c: dict[str, Any], prefix: str, inputs: int) -> dict[str, Tensor]:
    """Weights with which a feature stays about as large as it was, however often it goes through."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    query, key = dim * c["num_attention_heads"], dim * c["num_key_value_heads"]
    made = {
        "self_attn.q_proj": matrix(g, query, inputs, 0.8),
        "self_attn.k_proj": matrix(g, key, inputs),
        "self_attn.v_proj": matrix(g, key, inputs),
        "self_attn.o_proj": matrix(g, hidden, query, 0.5),
        "mlp.gate_proj": matrix(g, inner, hidden),
        "mlp.up_proj": matrix(g, inner, hidden),
        "mlp.down_proj": matrix(g, hidden, inner, 0.5),
        "post_attention_layernorm": scale(g, hidden),
    }
    if c["model_type"] == "qwen3":
        made |= {"self_attn.q_norm": scale(g, dim), "self_attn.k_norm": scale(g, dim)}
    biases = {}
    if c["model_type"] == "starcoder2":
        made |= {"mlp.c_fc": made.pop("mlp.up_proj"), "mlp.c_proj": made.pop("mlp.down_proj")}
        biases = {f"{prefix}post_attention_layernorm.bias": 0.1 * torch.randn(hidden, generator=g)}
    return {f"{prefix}{name}.weight": tensor for name, tensor in made.items()} | biases


def scale(g: torch.Generator, size: int) -> Tensor:
    return 1 + 0.1 * torch.randn(size, generator=g)


def eagle(folder: Path, bias: bool = True, embeddings: bool = False, **changes: Any) -> Path:
    """SafeAILab's layout of EAGLE and EAGLE-2: no norm before attention, no last norm, no head of its own."""
    g, c = torch.Generator().manual_seed(12), settings(**changes)
    hidden = c["hidden_size"]
    tensors = layer(g, c, "layers.0.", hidden) | {"fc.weight": matrix(g, hidden, 2 * hidden, 0.9)}
    if bias:
        tensors["fc.bias"] = 0.1 * torch.randn(hidden, generator=g)
    if embeddings:
        tensors["embed_tokens.weight"] = 0.5 * torch.randn(c["vocab_size"], hidden, generator=g)
    return written(folder, c, tensors)


LAYOUTS = ("safeailab", "modelopt", "speculators")


def eagle3(
    folder: Path,
    layout: str = "safeailab",
    few: int | None = 120,
    states: list[int] | None = None,
    layers: int = 1,
    **told: Any,
) -> Path:
    """EAGLE-3 as `layout` stores it, proposing `few` tokens (None: all); `told` are settings of the layout's own."""
    g = torch.Generator().manual_seed(13)
    kind = {"model_type": told.pop("model_type")} if "model_type" in told else {}
    c = settings(**kind, num_hidden_layers=layers) | ({"head_dim": 16} if layout == "speculators" else {})
    hidden, inputs, proposes = HIDDEN, (len(states) if states else 3) * HIDDEN, few or VOCAB
    prefix = "layers.0." if layout == "speculators" else "midlayer."
    tensors = layer(g, c, prefix, 2 * hidden)
    tensors |= {f"{prefix}{name}.weight": scale(g, hidden) for name in ("input_layernorm", "hidden_norm")}
    tensors |= {
        "fc.weight": matrix(g, hidden, inputs),
        "norm.weight": scale(g, hidden),
        "lm_head.weight": matrix(g, proposes, hidden),
    }
    if few:
        tokens = torch.randperm(VOCAB, generator=g)[:few].sort().values
        # "abc" and the end of a reply stay, so that something is accepted.
        tokens = torch.cat([torch.tensor([64, 65, 66, 67, 256]), tokens]).unique()[:few]
        tensors["d2t"] = tokens - torch.arange(few)
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, tokens, True)
    if told.get("norm_before_fc"):
        tensors["input_norm.weight"] = scale(g, inputs)
    if told.get("fc_norm"):
        tensors |= {f"fc_norm.{i}.weight": scale(g, hidden) for i in range(inputs // hidden)}
    for further in range(1, layers):
        tensors |= layer(g, c, f"layers.{further}.", hidden)
        tensors[f"layers.{further}.input_layernorm.weight"] = scale(g, hidden)
    if layout == "speculators":
        tensors["embed_tokens.weight"] = 0.5 * torch.randn(VOCAB, hidden, generator=g)
        whole: dict[str, Any] = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_version": "0.3.0",
            "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "someone/target"}},
            "transformer_layer_config": c,
            "draft_vocab_size": proposes,
            "eagle_aux_hidden_state_layer_ids": states,
        }
        return written(folder, whole | told, tensors)
    whole = c | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": proposes}
    if layout == "modelopt":
        switches = {"use_aux_hidden_state": True, "use_last_layernorm": True, "use_mtp_layernorm": False}
        whole["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": states, **switches}
    elif states:
        whole["eagle_aux_hidden_state_layer_ids"] = states
    return written(folder, whole | told, tensors)


def peagle(folder: Path, layout: str = "speculators", layers: int = 2, **told: Any) -> Path:
    """P-EAGLE: what EAGLE-3 has, a mask token and what is in the place of the states there."""
    name = "mask_token_id" if layout == "speculators" else "ptd_token_id"
    eagle3(folder, layout, layers=layers, **{name: 200} | told)
    whole, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    if layout == "speculators":
        whole |= {"speculators_model_type": "peagle", "architectures": ["PEagleSpeculator"]}
    inputs = tensors["fc.weight"].shape[1]
    tensors["mask_hidden"] = torch.randn(1, 1, inputs, generator=torch.Generator().manual_seed(14))
    return written(folder, whole, tensors)


def mtp(folder: Path, layers: int = 1, **told: Any) -> Path:
    """MiMo's layout: a whole checkpoint with the layer for multi-token prediction among the target's tensors."""
    shape = {"num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 5000.0}
    kind = {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "attention_bias": True}
    more = {"tie_word_embeddings": False, "num_nextn_predict_layers": layers}
    checkpoint(folder, **shape | kind | more | told)
    g, c = torch.Generator().manual_seed(15), json.loads((folder / "config.json").read_text())
    tensors, hidden = load_file(folder / "model.safetensors"), c["hidden_size"]
    for index in range(layers):
        prefix = f"model.mtp_layers.{index}."
        tensors |= layer(g, c, prefix, hidden)
        for name, size in (("q", hidden), ("k", hidden // 2), ("v", hidden // 2)):
            tensors[f"{prefix}self_attn.{name}_proj.bias"] = 0.3 * torch.randn(size, generator=g)
        for name in ("token", "hidden", "input", "final"):
            tensors[f"{prefix}{name}_layernorm.weight"] = 1 + 0.3 * torch.randn(hidden, generator=g)
        tensors[f"{prefix}input_proj.weight"] = matrix(g, hidden, 2 * hidden, 0.9)
    return written(folder, c, tensors)


def qwen_mtp(folder: Path, family: str = "qwen3_5", **told: Any) -> Path:
    """Qwen3.5's layout: "mtp.*" beside the target's tensors, the layer as transformers names its parts."""
    checkpoint(folder, **FAMILIES[family] | {"mtp_num_hidden_layers": 1} | told)
    g, c = torch.Generator().manual_seed(16), json.loads((folder / "config.json").read_text())
    tensors, hidden = load_file(folder / "model.safetensors"), c["hidden_size"]
    for name, weight in qwen_layer(c).state_dict().items():
        drawn = torch.randn(weight.shape, generator=g)
        tensors[f"mtp.layers.0.{name}"] = 0.3 * drawn if weight.dim() == 1 else drawn * 1.6 / weight.shape[-1] ** 0.5
    for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        tensors[f"mtp.{name}.weight"] = 0.3 * torch.randn(hidden, generator=g)
    tensors["mtp.fc.weight"] = matrix(g, hidden, 2 * hidden, 0.9)
    return written(folder, c, tensors)


def glm_mtp(folder: Path, **told: Any) -> Path:
    """GLM-4.5's layout: one layer more than config.json counts, with the tables that it shares with the target."""
    checkpoint(folder, **FAMILIES["glm4_moe"] | {"num_nextn_predict_layers": 1} | told)
    g, c = torch.Generator().manual_seed(17), json.loads((folder / "config.json").read_text())
    tensors, hidden, last = load_file(folder / "model.safetensors"), c["hidden_size"], c["num_hidden_layers"]
    of_last, prefix = f"model.layers.{last - 1}.", f"model.layers.{last}."
    for name, weight in [(name, one) for name, one in tensors.items() if name.startswith(of_last)]:
        drawn = torch.randn(weight.shape, generator=g)
        made = (
            1 + 0.3 * drawn if "norm" in name else 0.3 * drawn if weight.dim() == 1 else drawn / weight.shape[-1] ** 0.5
        )
        tensors[prefix + name.removeprefix(of_last)] = made
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{prefix}{name}.weight"] = 1 + 0.3 * torch.randn(hidden, generator=g)
    tensors[f"{prefix}eh_proj.weight"] = matrix(g, hidden, 2 * hidden, 0.9)
    for name, shared in (("shared_head.head", "lm_head"), ("embed_tokens", "model.embed_tokens")):
        tensors[f"{prefix}{name}.weight"] = tensors[f"{shared}.weight"].clone()
    return written(folder, c, tensors)


def kv_mtp(folder: Path, **changes: Any) -> Path:
    """Gemma 4's layout of layers that read the target's KV entries, in the shape of the tiny Llama."""
    g = torch.Generator().manual_seed(18)
    c = settings(hidden_size=48, head_dim=16, num_hidden_layers=2, max_position_embeddings=256) | changes
    tensors = {
        "pre_projection.weight": matrix(g, 48, 2 * HIDDEN),
        "post_projection.weight": matrix(g, HIDDEN, 48),
        "model.embed_tokens.weight": matrix(g, c["vocab_size"], 48),
        "model.norm.weight": scale(g, 48),
    }
    for index in range(2):
        own = layer(g, c, f"model.layers.{index}.", 48)
        tensors |= {name: one for name, one in own.items() if "k_proj" not in name and "v_proj" not in name}
        tensors[f"model.layers.{index}.input_layernorm.weight"] = scale(g, 48)
    kind = {"model_type": "gemma4_assistant", "backbone_hidden_size": HIDDEN, "text_config": c}
    return written(folder, kind, tensors)


def qwen_layer(c: dict[str, Any]) -> Any:
    """Transformers' own layer of full attention for a target's settings."""
    kind = c["model_type"].removesuffix("_text")
    name = kind.title().replace("_", "").replace("Qwen35", "Qwen3_5")
    modeling = import_module(f"transformers.models.{kind}.modeling_{kind}")
    settings = AutoConfig.for_model(**c)
    settings._attn_implementation = "eager"
    return getattr(modeling, f"{name}DecoderLayer")(settings, c["layer_types"].index("full_attention")).eval()

"""Random heads that draft a block at once, written with the keys and settings of those that are published."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.engine.published_heads import HIDDEN, layer, matrix, scale, settings, written
from tests.engine.tiny import VOCAB

LAYERS, BLOCK, MASK = 2, 6, 259


def shapes(**changes: Any) -> dict[str, Any]:
    """The layers' settings: a Qwen3 of a few layers."""
    few = {"num_hidden_layers": LAYERS, "head_dim": 16, "model_type": "qwen3", "max_position_embeddings": 4096}
    return settings(**few) | changes


def body(g: torch.Generator, c: dict[str, Any], states: int) -> dict[str, Tensor]:
    """What all of these heads have; a row stays about as large as it was, so that it shows where it stands."""
    hidden = c["hidden_size"]
    tensors = {"fc.weight": matrix(g, hidden, states * HIDDEN, 0.8)}
    tensors |= {f"{name}.weight": scale(g, hidden) for name in ("hidden_norm", "norm")}
    for i in range(c["num_hidden_layers"]):
        tensors |= layer(g, c, f"layers.{i}.", hidden)
        tensors[f"layers.{i}.input_layernorm.weight"] = scale(g, hidden)
    return tensors


def zlab(states: list[int] | None, **more: Any) -> dict[str, Any]:
    """The settings beside those of the layers as z-lab has them, who count layers from 0."""
    told = {"mask_token_id": MASK, "block_size": BLOCK, "target_layer_ids": states} | more
    return {"dflash_config": {key: value for key, value in told.items() if value is not None}}


def speculators(family: str, c: dict[str, Any], states: list[int], proposes: int, **more: Any) -> dict[str, Any]:
    """config.json as speculators writes it."""
    return {
        "architectures": [f"{family}Speculator"],
        "speculators_model_type": family,
        "speculators_version": "0.9.0",
        "speculators_config": {"algorithm": family, "verifier": {"name_or_path": "someone/target"}},
        "transformer_layer_config": c,
        "draft_vocab_size": proposes,
        "block_size": BLOCK,
        "aux_hidden_state_layer_ids": states,
        "mask_token_id": MASK,
    } | more


def own(g: torch.Generator, few: int | None) -> dict[str, Tensor]:
    """Embeddings and head of its own, which proposes `few` tokens; None: all."""
    tensors = {
        "embed_tokens.weight": 0.5 * torch.randn(VOCAB, HIDDEN, generator=g),
        "lm_head.weight": matrix(g, few or VOCAB, HIDDEN),
    }
    if few:
        # "abc" and the end of a reply stay, so that something is accepted.
        tokens = torch.cat([torch.tensor([64, 65, 66, 67, 256]), torch.randperm(VOCAB, generator=g)[:few]])
        tokens = tokens.unique()[:few]
        tensors["d2t"] = tokens - torch.arange(few)
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, tokens, True)
    return tensors


DFLASH = ("z-lab", "z-lab-early", "deepspec", "speculators")


def dflash(
    folder: Path, layout: str = "z-lab", states: list[int] | None = None, few: int | None = None, **told: Any
) -> Path:
    """DFlash as `layout` stores it; `told` are settings of the layout's own."""
    g = torch.Generator().manual_seed(21)
    kept = {key: told.pop(key) for key in ("layer_types", "sliding_window", "num_hidden_layers") if key in told}
    c = shapes(**kept)
    count = len(states) if states is not None else 3 if layout != "z-lab-early" else c["num_hidden_layers"]
    tensors = body(g, c, count)
    if layout == "speculators":
        tensors |= own(g, few)
        return written(folder, speculators("dflash", c, states or [1, 2, 3], few or VOCAB, **told), tensors)
    if layout == "deepspec":
        tensors |= own(g, None)
        flat = {"block_size": BLOCK, "mask_token_id": MASK, "target_layer_ids": states or [0, 1, 2], "markov_rank": 0}
        more = {"num_anchors": 512, "enable_confidence_head": False, "architectures": ["Qwen3DSparkModel"]}
        return written(folder, c | flat | more | told, tensors)
    c |= {"architectures": ["DFlashDraftModel"], "num_target_layers": told.pop("num_target_layers", 4)}
    if layout == "z-lab-early":
        whole = c | {"block_size": BLOCK} | zlab(states, block_size=None)
    else:
        whole = c | zlab(states or [0, 1, 2])
    return written(folder, whole | told, tensors)


RANK, BEST, TAPS, GROUP = 8, 64, 2, 16


def convolutions(g: torch.Generator, c: dict[str, Any]) -> dict[str, Tensor]:
    """Those of DFlash2's layers: kernels near to leaving a row as it is."""
    tensors: dict[str, Tensor] = {}
    for i in range(c["num_hidden_layers"]):
        for half in ("attention", "mlp"):
            base = 0.3 * torch.randn(2, TAPS, HIDDEN, generator=g)
            base[:, 0] += 1
            tensors[f"layers.{i}.{half}_conv.base_kernel"] = base
            made = matrix(g, 2 * TAPS * HIDDEN // GROUP, HIDDEN, 0.3)
            tensors[f"layers.{i}.{half}_conv.kernel_projection.weight"] = made
    return tensors


KERNEL = {"conv_kernel_size": TAPS, "conv_group_size": GROUP}


def dflash2(folder: Path, layout: str = "z-lab", best: int = BEST, **told: Any) -> Path:
    """DFlash2 as `layout` stores it, which chooses among so many of the `best` tokens."""
    g, c = torch.Generator().manual_seed(22), shapes()
    c |= {key: told.pop(key) for key in ("layer_types", "sliding_window") if key in told}
    tensors = body(g, c, 3) | convolutions(g, c)
    prefix, more = "candidate_selector.", KERNEL | {"selector_rank": RANK, "selector_top_k": best}
    tensors |= {
        f"{prefix}{name}_codebook": 0.5 * torch.randn(VOCAB, RANK, generator=g) for name in ("predecessor", "successor")
    }
    tensors[f"{prefix}hidden_projection.weight"] = matrix(g, RANK, HIDDEN)
    if layout == "speculators":
        return written(folder, speculators("dflash2", c, [1, 2, 3], VOCAB, **more, **told), tensors | own(g, None))
    whole = c | {"architectures": ["DFlash2DraftModel"], "is_causal": False, "num_target_layers": 4}
    return written(folder, whole | zlab([0, 1, 2], **more) | told, tensors)


def dspark(
    folder: Path,
    layout: str = "deepspec",
    kind: str = "vanilla",
    few: int | None = None,
    sees: bool = True,
    **told: Any,
) -> Path:
    """DSpark as `layout` stores it, with a bias of such a `kind`, and chances that see the token before, or do not."""
    g, c = torch.Generator().manual_seed(23), shapes()
    tensors = body(g, c, 3) | own(g, few)
    tensors["markov_head.markov_w1.weight"] = torch.randn(VOCAB, RANK, generator=g)
    tensors["markov_head.markov_w2.weight"] = matrix(g, few or VOCAB, RANK)
    products = {
        "vanilla": {},
        "gated": {"markov_head.gate_proj": (RANK, HIDDEN + RANK)},
        "rnn": {"markov_head.joint_proj": (3 * RANK, 2 * RANK + HIDDEN)},
    }[kind] | {"confidence_head.proj": (1, HIDDEN + RANK * sees)}
    for name, (outputs, inputs) in products.items():
        tensors |= {f"{name}.weight": matrix(g, outputs, inputs), f"{name}.bias": torch.randn(outputs, generator=g)}
    more = {"markov_rank": RANK, "markov_head_type": kind}
    more |= {"enable_confidence_head": True, "confidence_head_with_markov": sees}
    if layout == "speculators":
        return written(folder, speculators("dspark", c, [1, 2, 3], few or VOCAB, **more, **told), tensors)
    flat = {"block_size": BLOCK, "mask_token_id": MASK, "target_layer_ids": [0, 1, 2], "num_anchors": 512}
    whole = c | flat | {"architectures": ["Qwen3DSparkModel"], "num_target_layers": 4, "tie_word_embeddings": False}
    return written(folder, whole | more | told, tensors)


def xpress(folder: Path, layout: str = "published", convolved: bool = False, **told: Any) -> Path:
    """XPress as its authors or speculators store it, the latter also with DFlash2's layers."""
    g, c = torch.Generator().manual_seed(54), shapes()
    tensors = body(g, c, 3) | (convolutions(g, c) if convolved else {})
    prefix, names = "xpress_head.", ("w1", "mix.L", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "w2")
    if layout == "speculators":
        prefix, names = "refiner_head.", ("token_embed", "mix_l", "mlp_gate", "mlp_up", "mlp_down", "readout")
    w1, mixer, gate, up, down, w2 = names
    sizes = {"down_h": (RANK, HIDDEN), "down_g": (RANK, HIDDEN), "in_proj": (RANK, 3 * RANK), w2: (VOCAB, RANK)}
    sizes |= {gate: (2 * RANK, RANK), up: (2 * RANK, RANK), down: (RANK, 2 * RANK)}
    tensors |= {f"{prefix}{name}.weight": matrix(g, *size) for name, size in sizes.items()}
    # A small bias, so that something is accepted.
    tensors[f"{prefix}{w2}.weight"] *= 0.06
    tensors[f"{prefix}{w1}.weight"] = torch.randn(VOCAB, RANK, generator=g)
    # Stored whole, though only what is not above the diagonal counts.
    tensors[f"{prefix}{mixer}"] = 0.3 * torch.randn(RANK, BLOCK, BLOCK, generator=g)
    if layout == "speculators":
        more = {"xpress_rank": RANK, "xpress_mlp_ratio": 2, "num_jacobi_passes": 6} | KERNEL
        more["xpress_backbone"] = "dflash2" if convolved else "dflash"
        return written(folder, speculators("xpress", c, [1, 2, 3], VOCAB, **more, **told), tensors | own(g, None))
    more = {"xpress_rank": RANK, "xpress_mlp_hidden": 2 * RANK, "xpress_num_passes": 6, "num_target_layers": 4}
    whole = c | {"architectures": ["Qwen3XPressForCausalLM"]} | zlab([0, 1, 2]) | more
    return written(folder, whole | told, tensors)

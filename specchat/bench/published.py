"""Shapes of published models, from their config.json files on the Hugging Face hub, without weights."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specchat.engine.families.parts.family import described
from specchat.engine.recipe import Experts
from specchat.engine.weights.config import ModelConfig, parse_config


@dataclass(frozen=True)
class Shapes:
    """A target and the draft model of its family."""

    name: str
    target_name: str
    draft_name: str
    target: ModelConfig
    draft: ModelConfig

    def cut(self, layers: int | None) -> "Shapes":
        """Keep the target's first `layers` layers, and the same fraction of the draft's, at least one."""
        if layers is None or layers >= self.target.layers:
            return self
        part = max(1, round(self.draft.layers * layers / self.target.layers))
        return replace(self, target=self.target.cut(layers), draft=self.draft.cut(part))


def shaped(
    family: str,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    context: int,
    theta: float,
    tied: bool,
    **more: Any,
) -> ModelConfig:
    """A model of a family with these sizes, without rope scaling: it changes a table, not the time of a step.

    `more` are further keys of config.json.
    """
    return parse_config(
        Path(),
        {
            "model_type": family,
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "vocab_size": vocab,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-5 if family == "llama" else 1e-6,
            "rope_theta": theta,
            "tie_word_embeddings": tied,
            **more,
        },
    )


def experts(count: int, top: int, width: int) -> dict[str, Any]:
    """Keys of a mixture as in Qwen3-MoE."""
    return {
        "num_experts": count,
        "num_experts_per_tok": top,
        "moe_intermediate_size": width,
        "norm_topk_prob": True,
    }


def config_json(c: ModelConfig) -> dict[str, Any]:
    """The config.json that parses to `c`, if all of its layers are alike."""
    feed = c.recipe.layers[0].feed
    sparse = experts(feed.count, feed.top, feed.each.width) if isinstance(feed, Experts) else {}
    outer = {"max_position_embeddings": c.context, "dtype": "float16"}
    return {"model_type": c.family, **described(c.recipe), **sparse, **outer}


def narrowed(c: ModelConfig, *, hidden: int = 0, intermediate: int = 0, vocab: int = 0) -> ModelConfig:
    """A model of the same family with other sizes; 0 keeps one."""
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "vocab_size": vocab}
    return parse_config(Path(), config_json(c) | {key: size for key, size in sizes.items() if size})


QWEN3_8B = shaped("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 40960, 1e6, False)
QWEN3_06B = shaped("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, True)
QWEN3_30B_A3B = shaped("qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, 40960, 1e6, False, **experts(128, 8, 768))
LLAMA31_8B = shaped("llama", 4096, 14336, 32, 32, 8, 128, 128256, 131072, 5e5, False)
LLAMA32_1B = shaped("llama", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 5e5, True)
QWEN25_14B = shaped("qwen2", 5120, 13824, 48, 40, 8, 128, 152064, 32768, 1e6, False)
QWEN25_05B = shaped("qwen2", 896, 4864, 24, 14, 2, 64, 151936, 32768, 1e6, True)

PUBLISHED: dict[str, Shapes] = {
    shapes.name: shapes
    for shapes in (
        Shapes("qwen3-8b", "Qwen3-8B", "Qwen3-0.6B", QWEN3_8B, QWEN3_06B),
        Shapes("llama-3.1-8b", "Llama-3.1-8B", "Llama-3.2-1B", LLAMA31_8B, LLAMA32_1B),
        Shapes("qwen2.5-14b", "Qwen2.5-14B", "Qwen2.5-0.5B", QWEN25_14B, QWEN25_05B),
        Shapes("qwen3-30b-a3b", "Qwen3-30B-A3B", "Qwen3-0.6B", QWEN3_30B_A3B, QWEN3_06B),
    )
}

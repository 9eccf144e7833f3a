"""Shapes of published models, from their config.json files on the Hugging Face hub; no weights."""

from dataclasses import dataclass, replace

from specchat.engine.model.config import ModelConfig, Rope


@dataclass(frozen=True)
class Shapes:
    """A target and the draft model of its family."""

    name: str
    target_name: str
    draft_name: str
    target: ModelConfig
    draft: ModelConfig

    def cut(self, layers: int | None) -> "Shapes":
        """The same with the target's first `layers` layers, and as large a part of the draft's, at least one."""
        if layers is None or layers >= self.target.layers:
            return self
        part = max(1, round(self.draft.layers * layers / self.target.layers))
        return replace(self, target=replace(self.target, layers=layers), draft=replace(self.draft, layers=part))


def _config(
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
) -> ModelConfig:
    # How positions are scaled changes a table, not the time of a step.
    return ModelConfig(
        family=family,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        context=context,
        norm_eps=1e-5 if family == "llama" else 1e-6,
        rope=Rope(theta, "default", {}),
        tied=tied,
        qkv_bias=family == "qwen2",
        out_bias=False,
        mlp_bias=False,
        qk_norm=family == "qwen3",
        eos=frozenset(),
    )


QWEN3_8B = _config("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 40960, 1e6, False)
QWEN3_06B = _config("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, True)
LLAMA31_8B = _config("llama", 4096, 14336, 32, 32, 8, 128, 128256, 131072, 5e5, False)
LLAMA32_1B = _config("llama", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 5e5, True)
QWEN25_14B = _config("qwen2", 5120, 13824, 48, 40, 8, 128, 152064, 32768, 1e6, False)
QWEN25_05B = _config("qwen2", 896, 4864, 24, 14, 2, 64, 151936, 32768, 1e6, True)

PUBLISHED: dict[str, Shapes] = {
    shapes.name: shapes
    for shapes in (
        Shapes("qwen3-8b", "Qwen3-8B", "Qwen3-0.6B", QWEN3_8B, QWEN3_06B),
        Shapes("llama-3.1-8b", "Llama-3.1-8B", "Llama-3.2-1B", LLAMA31_8B, LLAMA32_1B),
        Shapes("qwen2.5-14b", "Qwen2.5-14B", "Qwen2.5-0.5B", QWEN25_14B, QWEN25_05B),
    )
}

"""The table of docs/families.md: what each family's recipes hold, and where they run; `python -m tests.families.page`
writes it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from specchat.engine import families
from specchat.engine.memory import gpu_need, vectors
from specchat.engine.recipe import Attention, Delta, Experts, Layer, ShortConv
from specchat.engine.weights.config import ModelConfig, parse_config
from tests.engine.tiny import FAMILIES, config

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
BEGIN, END = "<!-- table: python -m tests.families.page -->\n\n", "\n\n<!-- end of the table -->"


def attends(has: Callable[[Attention], object]) -> Callable[[Layer], object]:
    """A feature of layers with attention."""
    return lambda layer: isinstance(layer.mixer, Attention) and has(layer.mixer)


OF_LAYERS: dict[str, Callable[[Layer], object]] = {
    "recurrent layers": lambda one: isinstance(one.mixer, Delta),
    "states of Mamba 2": lambda one: isinstance(one.mixer, Delta) and one.mixer.selective,
    "layers without an MLP": lambda one: not one.feed,
    "short convolutions": lambda one: isinstance(one.mixer, ShortConv),
    "a gate on attention": attends(lambda mixer: mixer.gated),
    "biases": lambda one: any(matrix.bias for matrix in one.products),
    "fused matrices": lambda one: any(len(matrix.names) < len(matrix.outputs) for matrix in one.products),
    "windows": attends(lambda mixer: mixer.window),
    "layers without rope": attends(lambda mixer: mixer.rope is None),
    "a part of heads rotated": attends(lambda mixer: mixer.rope and mixer.rope.width < mixer.head_dim),
    "rotation in pairs": attends(lambda mixer: mixer.qkv.paired[1]),
    "norms of heads": attends(lambda mixer: mixer.query_norm and mixer.query_norm.size == mixer.head_dim),
    "norms over all heads": attends(lambda mixer: mixer.query_norm and mixer.query_norm.size > mixer.head_dim),
    "norms of values": attends(lambda mixer: mixer.value_norm),
    "keys as values": attends(lambda mixer: len(set(mixer.qkv.names)) < len(mixer.qkv.names)),
    "queries that grow": attends(lambda mixer: mixer.temper[0]),
    "sinks": attends(lambda mixer: mixer.sinks),
    "norms after the rotation": attends(lambda mixer: mixer.late_norms),
    "latent attention": attends(lambda mixer: mixer.latent),
    "a cap on scores": attends(lambda mixer: mixer.score_cap),
    "shared KV entries": attends(lambda mixer: mixer.share is not None),
    "inputs of each layer": lambda one: one.input,
    "norms after": lambda one: one.post_mixer,
    "gelu": lambda one: one.feed and one.gated.activation == "gelu_tanh",
    "MLPs without a gate": lambda one: one.feed and one.gated.ungated,
    "squared ReLU": lambda one: one.feed and one.gated.activation == "relu2",
    "xIELU": lambda one: one.feed and one.gated.curve,
    "experts": lambda one: isinstance(one.feed, Experts),
    "an MLP beside experts": lambda one: isinstance(one.feed, Experts) and one.feed.shared,
    "experts by sigmoids": lambda one: isinstance(one.feed, Experts) and one.feed.sigmoid,
    "groups of experts": lambda one: isinstance(one.feed, Experts) and one.feed.groups[1] < one.feed.groups[0],
    "parallel halves": lambda one: one.parallel,
    "LayerNorm": lambda one: one.pre_mixer and one.pre_mixer.centred,
    "factors on residuals": lambda one: one.residual != 1 or one.scalar,
}
"""Features by name: true of a layer that has one."""


def configs(kind: str) -> list[ModelConfig]:
    """The small models of a family that the tests have; one like Llama's where its tests make their own."""
    chosen = [changes for changes in FAMILIES.values() if changes.get("model_type", "llama") == kind]
    return [parse_config(Path(), config(**changes)) for changes in chosen or [{"model_type": kind}]]


def features(found: list[ModelConfig]) -> Iterator[str]:
    """Features that any of some models has, beside Llama's."""
    layers = [layer for one in found for layer in one.recipe.layers]
    yield from (name for name, has in OF_LAYERS.items() if any(map(has, layers)))
    if any(len(one.recipe.ropes) > 1 and None not in one.recipe.ropes for one in found):
        yield "ropes by layer"
    if any(one.recipe.embed_eps is not None for one in found):
        yield "a norm of embeddings"
    if any(one.recipe.embed_scale != 1 or one.recipe.logit_scale != 1 for one in found):
        yield "factors on embeddings or logits"
    if any(one.recipe.cap for one in found):
        yield "a cap on logits"


def runs(reasons: list[str]) -> str:
    """Whether models run, in words, by the reasons why not."""
    reason = next((words.partition(":")[0] for words in reasons if words), "")
    return f"{'no' if all(reasons) else 'yes, but not'}{':' * all(reasons)} {reason}" if reason else "yes"


def table() -> str:
    """The table in Markdown."""
    lines = [
        "| family | features beside Llama's | reference | compiled for processors | GPU kernels |",
        "|---|---|---|---|---|",
    ]
    for kind, family in families.known().items():
        found = configs(kind)
        cpu = runs([vectors.unsupported(one.recipe) for one in found])
        gpu = runs([gpu_need.unsupported(one) for one in found])
        lines.append(f"| {family.name} | {', '.join(features(found)) or '-'} | yes | {cpu} | {gpu} |")
    return "\n".join(lines)


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], "utf-8")

"""A recipe's layers against transformers, on random models in which every tensor and scalar matters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from specchat.engine.recipe import Layer, Matrix, Recipe, Rope
from specchat.engine.reference.layer import hidden_states, logits
from specchat.engine.reference.tensors import Dense
from specchat.engine.weights.config import parse_config

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.4,
    "logits_scaling": 0.6,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "llama, llama3 rope": {"rope_parameters": LLAMA3, "tie_word_embeddings": True},
    "llama, yarn": {"rope_parameters": YARN},
    "mistral": {"sliding_window": 16},
    "qwen2": {"num_key_value_heads": 1},
    "qwen3": {"head_dim": 24, "attention_bias": True},
    "smollm3": {"no_rope_layer_interval": 2},
    "granite": GRANITE,
    "olmo2": {},
}
BATCH, ROWS = 2, 24


@dataclass
class Case:
    """A model of transformers, texts int64 [BATCH, ROWS], its logits of them, and our recipe of it."""

    model: transformers.PreTrainedModel
    tokens: Tensor
    theirs: Tensor
    recipe: Recipe

    @property
    def tensors(self) -> Dense:
        return Dense(self.model.state_dict(keep_vars=True))

    def apart(self, recipe: Recipe) -> float:
        """How far logits of `recipe` are from those of transformers, at most."""
        with torch.no_grad():
            found = logits(recipe, hidden_states(recipe, self.tokens, self.tensors)[-1], self.tensors)
        return float((found - self.theirs).abs().max())


def model_of(name: str) -> transformers.PreTrainedModel:
    """A random model of transformers, its norms and biases far from those of a fresh one."""
    small = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4}
    asked = {"num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": False}
    given = {"vocab_size": 96, "pad_token_id": None} | small | asked | MODELS[name]
    config = transformers.AutoConfig.for_model(name.split(",")[0], **given)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(drawn * 1.4 / parameter.shape[1] ** 0.5)
            else:
                parameter.add_(0.4 * drawn)  # to the ones of a norm, the zeros of a bias
    return model


def changed(of: Layer, **fields: Any) -> Layer:
    """A layer with other attention."""
    return replace(of, mixer=replace(of.mixer, **fields))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    found = {}
    for name in MODELS:
        model = model_of(name)
        tokens = torch.randint(0, model.config.vocab_size, (BATCH, ROWS), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            theirs = model(tokens).logits
        recipe = parse_config(Path("nowhere"), model.config.to_dict()).recipe
        found[name] = Case(model, tokens, theirs, recipe)
    return found


CLOSE = 2e-4
"""How far logits may be apart, of which the deviation is about 1."""


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    assert case.theirs.std() > 0.3  # lively logits, or agreement would mean nothing
    assert case.apart(case.recipe) < CLOSE


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_transformers(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    weights = torch.randn(case.theirs.shape, generator=torch.Generator().manual_seed(2))
    found = []
    for made in (
        case.model(case.tokens).logits,
        logits(case.recipe, hidden_states(case.recipe, case.tokens, case.tensors)[-1], case.tensors),
    ):
        case.model.zero_grad()
        (made * weights).sum().backward()
        found.append({name: one.grad.clone() for name, one in case.model.named_parameters()})
    theirs, ours = found
    for name, gradient in theirs.items():
        assert gradient.abs().max() > 0, name
        assert (ours[name] - gradient).abs().max() < 1e-3 * gradient.abs().max(), name


def unbiased(of: Matrix) -> Matrix:
    return replace(of, bias=False)


def roped(of: Layer, **fields: Any) -> Layer:
    rope = of.mixer.rope
    return changed(of, rope=rope and replace(rope, **fields))


WRONG: dict[str, Callable[[Layer], Layer]] = {
    "no rope": lambda of: changed(of, rope=None),
    "rope everywhere": lambda of: changed(of, rope=of.mixer.rope or Rope(10000.0, "default", of.mixer.head_dim, {})),
    "rope's base": lambda of: roped(of, theta=9000.0),
    "rope's scaling": lambda of: roped(of, kind="default"),
    "scale": lambda of: changed(of, scale=1.05 * of.mixer.scale),
    "window": lambda of: changed(of, window=of.mixer.window + 1 if of.mixer.window else ROWS - 1),
    "query norm": lambda of: changed(of, query_norm=None),
    "key norm": lambda of: changed(of, key_norm=None),
    "biases of queries": lambda of: changed(of, qkv=unbiased(of.mixer.qkv)),
    "bias after attention": lambda of: changed(of, out=unbiased(of.mixer.out)),
    "biases of the MLP": lambda of: replace(of, feed=replace(of.feed, gate_up=unbiased(of.feed.gate_up))),
    "attention's norm after it": lambda of: replace(of, pre_mixer=None, post_mixer=of.pre_mixer or of.post_mixer),
    "attention's norm before it": lambda of: replace(of, pre_mixer=of.pre_mixer or of.post_mixer, post_mixer=None),
    "the MLP's norm after it": lambda of: replace(of, pre_feed=None, post_feed=of.pre_feed or of.post_feed),
    "the MLP's norm before it": lambda of: replace(of, pre_feed=of.pre_feed or of.post_feed, post_feed=None),
    "norms exchanged": lambda of: replace(of, pre_mixer=of.pre_feed, pre_feed=of.pre_mixer),
    "eps": lambda of: replace(of, pre_mixer=of.pre_mixer and replace(of.pre_mixer, eps=0.03)),
    "residual": lambda of: replace(of, residual=1.02 * of.residual),
}
"""Details of a layer told wrongly."""
WRONG_AROUND: dict[str, Callable[[Recipe], Recipe]] = {
    "scale of embeddings": lambda of: replace(of, embed_scale=1.02 * of.embed_scale),
    "scale of logits": lambda of: replace(of, logit_scale=1.02 * of.logit_scale),
    "tied head": lambda of: replace(of, head=of.embed),
    "last norm": lambda of: replace(of, norm=replace(of.norm, eps=0.03)),
}


@pytest.mark.parametrize("detail", WRONG)
def test_a_wrong_detail_of_one_layer_shows(detail: str, cases: dict[str, Case]) -> None:
    tried = 0
    for name, case in cases.items():
        layers = case.recipe.layers
        wrong = [WRONG[detail](of) for of in layers]
        at = next((i for i, of in enumerate(layers) if wrong[i] != of), None)
        if at is not None:
            tried += 1
            one_wrong = (*layers[:at], wrong[at], *layers[at + 1 :])
            assert case.apart(replace(case.recipe, layers=one_wrong)) > 5 * CLOSE, name
    assert tried


@pytest.mark.parametrize("detail", WRONG_AROUND)
def test_a_wrong_detail_around_the_layers_shows(detail: str, cases: dict[str, Case]) -> None:
    wrong = {name: WRONG_AROUND[detail](case.recipe) for name, case in cases.items()}
    tried = [name for name, case in cases.items() if wrong[name] != case.recipe]
    assert tried
    for name in tried:
        assert cases[name].apart(wrong[name]) > 5 * CLOSE, name

"""GGUF files on the device: the reference's logits of weights in blocks, alike and unlike, within the plan."""

from pathlib import Path
from typing import Any

import pytest
import torch

from measure import random_gguf
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.rehearsal import blank
from specchat.engine.device.weights import ModelWeights, held_bytes, load
from specchat.engine.formats.gpu_blocks import GridWords, InWords
from specchat.engine.formats.grids import GRIDS
from specchat.engine.formats.layout import FourBit, Joined
from specchat.engine.kernels.processors import processors
from specchat.engine.kernels.stored import parts_of
from specchat.engine.memory.gpu_need import verifying
from specchat.engine.memory.need import Model, main_expert_bytes
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE
from tests.device.test_decoder import SLACK, ids, run
from tests.engine.test_gguf_types import rows_of
from tests.engine.tiny import FAMILIES, checkpoint
from tests.gpu_net.fake_torch import fake_torch

pytestmark = pytest.mark.needs_gguf

GPU = torch.device("cuda", 0)
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
ATTENTION = {"attn_q": "Q4_0", "attn_k": "Q4_0", "attn_v": "Q8_0", "attn_output": "Q5_0", "token_embd": "Q8_0"}
FILES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "dense": (
        {**FAMILIES["qwen3"], **SHAPE, "intermediate_size": 96},
        {"ffn_gate": "Q4_1", "ffn_up": "Q5_1", "ffn_down": "F16"},
    ),
    "alike": (
        {**FAMILIES["qwen3_moe"], **SHAPE, "moe_intermediate_size": 64},
        {"ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q4_0", "ffn_down_exps": "Q8_0"},
    ),
    "unlike": (
        {**FAMILIES["qwen3_moe"], **SHAPE, "moe_intermediate_size": 64},
        {"ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q8_0", "ffn_down_exps": "Q5_1"},
    ),
    "dense gates": (
        {**FAMILIES["qwen3_moe"], **SHAPE, "moe_intermediate_size": 64},
        {"ffn_gate_exps": "F16", "ffn_up_exps": "Q4_1", "ffn_down_exps": "Q4_0"},
    ),
    "MXFP4 beside dense": (
        {**FAMILIES["qwen3_moe"], **SHAPE, "moe_intermediate_size": 64},
        {"ffn_gate_exps": "MXFP4", "ffn_up_exps": "F16", "ffn_down_exps": "MXFP4"},
    ),
    "MXFP4 beside blocks": (
        {**FAMILIES["qwen3_moe"], **SHAPE, "moe_intermediate_size": 64},
        {"ffn_gate_exps": "MXFP4", "ffn_up_exps": "Q8_0", "ffn_down_exps": "F16"},
    ),
    "codebooks": (
        {**FAMILIES["qwen3_moe"], **SHAPE, "hidden_size": 256, "num_hidden_layers": 1, "moe_intermediate_size": 256},
        {
            **dict.fromkeys(ATTENTION, "IQ2_XS"),
            "attn_output": "F16",
            "ffn_gate_exps": "IQ2_S",
            "ffn_up_exps": "IQ3_S",
            "ffn_down_exps": "IQ2_XXS",
            "token_embd": "IQ3_XXS",
        },
    ),
}
"""Settings of a model, and the types of its matrices by their names."""


def written(file: Path, settings: dict[str, Any], types: dict[str, str]) -> Path:
    """A random model in a GGUF file whose matrices have the types of their names; others are float32."""
    import gguf

    def put(writer: Any, name: str, tensor: torch.Tensor, _: str) -> None:
        kind = types.get(name.removesuffix(".weight").split(".")[-1], "F32") if tensor.dim() > 1 else "F32"
        form = gguf.GGMLQuantizationType[kind]
        numbers = tensor.float().contiguous().numpy()
        if kind in GRIDS:
            numbers = rows_of(kind, tensor.shape[:-1].numel(), tensor.shape[-1]).reshape(*tensor.shape[:-1], -1)
        elif kind != "F32":
            numbers = gguf.quants.quantize(numbers, form)
        writer.add_tensor(name, numbers, raw_dtype=form)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_gguf, "_put", put)
        random_gguf.write(Checkpoint.open(checkpoint(file.with_suffix(""), **settings)), file, "f32")
    return file


@pytest.fixture(scope="module", params=FILES)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    settings, types = FILES[request.param]
    return Checkpoint.open(written(tmp_path_factory.mktemp("gguf") / "m.gguf", settings, ATTENTION | types))


@pytest.fixture
def unlike(request: pytest.FixtureRequest) -> bool:
    """True where gates and ups of experts are stored unlike each other."""
    return request.node.callspec.params["opened"] in ("unlike", "dense gates", "MXFP4 beside blocks", "codebooks")


def decoder(opened: Checkpoint, in_main: int = 0, device: torch.device = DEVICE) -> DeviceDecoder:
    loaded = load(opened, None, device, torch.float32, experts_in_main=in_main)
    return DeviceDecoder(opened.config, loaded, CONTEXT, device, torch.float32)


@pytest.mark.rotated(3, 1)
def test_logits_are_the_references_and_a_row_is_alone(opened: Checkpoint, unlike: bool) -> None:
    model, host, tokens = decoder(opened), ReferenceDecoder(opened), ids(7)
    assert isinstance(model.weights.embed, InWords)
    made = run(model, tokens, 0)
    torch.testing.assert_close(made, host.logits(host.forward(tokens, 0)), atol=SLACK, rtol=SLACK)
    assert torch.equal(made, torch.cat([run(model, [token], place) for place, token in enumerate(tokens)]))
    run(blank(model), tokens, 0)
    of_experts = [one.weight for form, one in model.weights.products.items() if "{}" in form.names[0]]
    assert [len(one.parts) for one in of_experts if isinstance(one, Joined)] == [2] * unlike * opened.config.layers


def test_experts_in_main_memory_have_the_same_bits(opened: Checkpoint) -> None:
    if not opened.config.recipe.mixtures:
        pytest.skip("no experts")
    tokens = ids(5)
    assert torch.equal(run(decoder(opened, 1), tokens, 0), run(decoder(opened), tokens, 0))


def tables(weights: ModelWeights) -> int:
    """Bytes of the values that codes stand for, which plans leave out."""
    parts = [part for product in weights.products.values() for part in parts_of(product.weight)]
    nested = [part.nested.code for part in parts if isinstance(part, FourBit) and part.nested]
    codes = [part.code for part in parts if isinstance(part, FourBit | InWords)]
    codebooks = [part.codebook for part in parts if isinstance(part, GridWords)]
    return sum(one.nbytes for one in (*nested, *codes, *codebooks))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("in_main", [0, 1])
def test_what_is_held_is_planned(opened: Checkpoint, in_main: int) -> None:
    experts = opened.config.recipe.mixtures
    if in_main and not experts:
        pytest.skip("no experts")
    of = Model(opened.config, "cuda", opened.quant, opened.format, experts_in_main=in_main)
    with fake_torch(computes=True):
        planned = plan(of, None, CONTEXT, processors(GPU)).need("cuda")
        weights = load(opened, None, GPU, torch.float16, experts_in_main=in_main)
        model = DeviceDecoder(opened.config, weights, CONTEXT, GPU, torch.float16)
        held, taken = held_bytes(weights), model.memory() + GPU_RUNTIME + verifying(opened.config)
    assert planned.weights == pytest.approx(held - tables(weights), rel=0.002)
    assert planned.total - taken == pytest.approx(planned.weights - held, abs=1024)
    assert (main_expert_bytes(of) > 0) == bool(in_main)

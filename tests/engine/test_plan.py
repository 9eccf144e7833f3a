"""The memory planner: against loaded models, real tensors and the shapes of published ones."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from measure.families import config
from specchat.bench.published import shaped
from specchat.config.catalog import Pair
from specchat.config.paths import demo_model
from specchat.engine.errors import EngineError
from specchat.engine.formats import by_quant
from specchat.engine.formats.bitsandbytes import FourBitFloats
from specchat.engine.formats.layout import EightBit, FourBit, Weight
from specchat.engine.formats.mxfp4 import Mxfp4
from specchat.engine.formats.quantise import fused, owned, quantise
from specchat.engine.kernels.gpu_shapes import SHARING_HEADS, WIDEST, WIDEST_HEAD
from specchat.engine.memory.devices import half_on_cpu
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.memory.need import Model, Need, Place, locked_bytes, main_expert_bytes, need, quantised
from specchat.engine.memory.plan import (
    GIB,
    GPU_RUNTIME,
    MIN_PARAMETERS,
    SPARE,
    Plan,
    check_fits,
    cut_in_two,
    drafting,
    fits,
    for_both,
    making_room,
    nearest,
    plan,
)
from specchat.engine.protocol.pair import DEFAULT_CONTEXT, QUANTS, Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig, parse_config
from tests.config.test_shipped_models import IN_MXFP4, OVERHEAD_GIB, REAL, SHAPES, Shape
from tests.engine.tiny import FAMILY, checkpoint

WITHIN = 0.05
LLAMA = {
    "family": "llama",
    "hidden": 4096,
    "intermediate": 14336,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 128256,
    "context": 131072,
    "tied": False,
}


SMALL = {
    "family": "llama",
    "hidden": 64,
    "intermediate": 112,
    "layers": 4,
    "heads": 4,
    "kv_heads": 4,
    "head_dim": 16,
    "vocab": 260,
    "context": 256,
    "theta": 1e4,
    "tied": True,
}


@pytest.fixture
def shape() -> Callable[..., ModelConfig]:
    """Configurations of published shapes, read as those of checkpoints are."""
    return lambda **changes: shaped(**(SMALL | changes))


def qwen(hidden: int, layers: int, heads: int, intermediate: int, value_heads: int) -> ModelConfig:
    settings = {
        "model_type": "qwen3_5_text",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 4,
        "intermediate_size": intermediate,
        "linear_num_value_heads": value_heads,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "tie_word_embeddings": False,
    }
    return parse_config(Path(), settings)


UNLIKE = {
    "Qwen/Qwen3.8-27B": qwen(5120, 64, 24, 17408, 48),
    "Qwen/Qwen3.5-9B": config("Qwen3.5-9B"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": config("Qwen3-Coder-30B-A3B"),
    "Qwen/Qwen3.6-35B-A3B": config("Qwen3.6-35B-A3B"),
    "google/gemma-4-26B-A4B-it": config("Gemma 4 26B-A4B"),
    "google/gemma-4-31B-it": config("Gemma 4 31B"),
    "openai/gpt-oss-20b": config("gpt-oss-20b"),
}
"""Models that the page does not list by the shape of their layers."""


def of(stated: Shape) -> ModelConfig:
    few, window = stated.windows
    if few:
        settings = {
            "model_type": "gemma3_text",
            "hidden_size": stated.hidden,
            "intermediate_size": stated.ffn,
            "num_hidden_layers": stated.layers,
            "num_attention_heads": stated.heads,
            "num_key_value_heads": stated.kv_heads,
            "head_dim": stated.head_size,
            "vocab_size": stated.vocabulary,
            "sliding_window": window,
            "max_position_embeddings": 131072,
        }
        made = parse_config(Path(), settings)
        assert sum(layer.attention.window > 0 for layer in made.recipe.layers) == few
        return made
    family = {"q/k/v bias": "qwen2", "q/k norm": "qwen3"}.get(stated.extra, "llama")
    return shaped(
        family,
        stated.hidden,
        stated.ffn,
        stated.layers,
        stated.heads,
        stated.kv_heads,
        stated.head_size,
        stated.vocabulary,
        131072,
        1e4,
        stated.tied,
    )


@pytest.mark.parametrize("family", FAMILY)
def test_a_loaded_model_takes_what_was_planned(family: str, tmp_path: Path) -> None:
    decoder = ReferenceDecoder(Checkpoint.open(checkpoint(tmp_path, **FAMILY[family])), 100)
    planned = need(Model(decoder.config, "cpu"), 100)
    assert planned.weights + planned.cache == pytest.approx(decoder.memory(), rel=WITHIN)
    assert planned.cache == decoder.cache.memory()


@pytest.mark.parametrize("quant", [None, "nf4", "int8"])
@pytest.mark.parametrize("which", ["target", "draft"])
def test_the_demo_pair_takes_what_was_planned(which: str, quant: Quant | None) -> None:
    if quant:
        pytest.importorskip("bitsandbytes")
    demo = Checkpoint.open(demo_model(which))
    decoder = ReferenceDecoder(demo, quant=quant)
    planned = need(Model(demo.config, "cpu", quant, half=half_on_cpu(demo)), decoder.context)
    assert planned.weights + planned.cache == pytest.approx(decoder.memory(), rel=WITHIN)


def held(weight: Weight) -> int:
    match weight:
        case FourBit(packed, scales, _, _, nested):
            tensors = [packed, scales, *([nested.absmax, nested.offset] if nested else [])]
        case EightBit(values, scales):
            tensors = [values, scales]
        case _:
            tensors = [weight]
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("quant", [None, *QUANTS])
@pytest.mark.parametrize("inner", [704, 352])
def test_real_tensors_take_what_was_planned(
    inner: int, quant: Quant | None, place: Place, shape: Callable[..., ModelConfig]
) -> None:
    pytest.importorskip("bitsandbytes")
    c = shape(hidden=256, intermediate=inner, layers=3, heads=8, kv_heads=4, head_dim=32, vocab=500)
    dense = torch.float32 if place == "cpu" else torch.bfloat16

    def matrix(outputs: int, inputs: int) -> Weight:
        return (
            quantise(torch.ones(outputs, inputs, dtype=dense), quant)
            if quant
            else torch.zeros(outputs, inputs, dtype=dense)
        )

    total = c.vocab * c.hidden * dense.itemsize + 4 * c.hidden
    for parts, inputs in (((256, 128, 128), 256), ((256,), 256), ((inner, inner), 256), ((256,), inner)):
        weight = fused([matrix(part, inputs) for part in parts])
        total += c.layers * held(owned(weight) if place == "cpu" else weight)
    total += c.layers * 2 * 4 * c.hidden
    assert need(Model(c, place, quant), 64).weights == pytest.approx(total, rel=0.001)


def test_a_workspace_holds_the_second_copy_of_the_largest_matrix(shape: Callable[..., ModelConfig]) -> None:
    c = shape(hidden=64, vocab=50_000, context=64)
    assert need(Model(c, "cpu"), 64).workspace >= 4 * 64 * 50_000


@pytest.mark.parametrize("name", ["Qwen3.5-9B", "Qwen3.6-35B-A3B", "gpt-oss-20b", "Gemma 4 26B-A4B", "Gemma 4 31B"])
def test_a_long_context_takes_hardly_more_than_its_cache_on_a_gpu(name: str) -> None:
    """Sums of attention, of which prompts have none, and tables of positions: bytes for each of the cache."""
    short, long = (need(Model(config(name), "cuda", "nf4"), context) for context in (1024, 131_072))
    assert (long.workspace - short.workspace) / (long.cache - short.cache) < 0.14


def is_published_packed(pair: Pair) -> bool:
    """True where the needs are those of a GGUF or an AWQ checkpoint, which are not here to be planned."""
    return pair.spec.target.is_gguf or (pair.spec.target.repo or "").endswith("-AWQ")


@pytest.mark.parametrize("pair", [p for p in REAL if not is_published_packed(p)], ids=lambda pair: pair.id)
def test_shipped_needs_agree_with_the_plan(pair: Pair) -> None:
    sources = [source for source in (pair.spec.target, pair.spec.draft) if source is not None]
    for place, stated in (("cuda", pair.requires.vram_gib), ("cpu", pair.requires.ram_gib)):
        shapes = [UNLIKE[repo] if (repo := source.repo or "") in UNLIKE else of(SHAPES[repo]) for source in sources]
        models = [
            Model(c, place, source.quant, half=True, threads=1, stored=Mxfp4() if source.repo in IN_MXFP4 else None)
            for c, source in zip(shapes, sources, strict=True)
        ]
        target, draft = (*models, None)[:2]
        planned = drafting(plan(target, draft, pair.spec.context or DEFAULT_CONTEXT), {}).need(place)
        assert (planned.weights + planned.cache) / GIB + OVERHEAD_GIB == pytest.approx(stated, rel=0.02)
        if place == "cuda":
            assert planned.workspace / GIB < OVERHEAD_GIB
            of_experts = main_expert_bytes(replace(target, experts_in_main=target.config.layers)) / GIB
            assert (pair.requires.experts_gib or 0) == math.floor(10 * of_experts) / 10


def pair_of(shape: Callable[..., ModelConfig], place: Place, quant: Quant | None = None, context: int = 8192) -> Plan:
    return plan(Model(shape(**LLAMA), place, quant), None, context)


def refusal(planned: Plan, **available: int | None) -> str:
    with pytest.raises(EngineError) as caught:
        check_fits(planned, {"cpu": available.get("cpu"), "cuda": available.get("cuda")}, "Llama")
    assert caught.value.kind == "memory"
    assert "\n" not in caught.value.message
    return caught.value.message


def test_what_fits_and_what_is_not_known_passes(shape: Callable[..., ModelConfig]) -> None:
    planned = pair_of(shape, "cuda")
    tight: dict[Place, int | None] = {"cuda": 24 * GIB, "cpu": 1}
    check_fits(making_room(planned, tight), tight, "Llama")
    check_fits(planned, {"cuda": None, "cpu": None}, "Llama")


def test_the_numbers_and_a_smaller_context_are_told(shape: Callable[..., ModelConfig]) -> None:
    planned = pair_of(shape, "cuda", context=65536)
    message = refusal(planned, cuda=19 * GIB)
    total = planned.need("cuda")
    assert f"Llama needs {total.total / GIB:.1f} GiB of GPU memory with context 65536" in message
    assert "weights 14.0, cache 8.0, workspace" in message
    assert "; 18.0 of the 19.0 GiB that are free can be used. It fits with context = " in message
    advice = re.search(r'It fits with context = (\d+), or with cache = "int8" and context = (\d+)\.$', message)
    assert advice
    for context, changed in zip(map(int, advice.groups()), (planned, planned.with_int8_cache()), strict=True):
        check_fits(replace(changed, context=context), {"cuda": 19 * GIB}, "Llama")
        with pytest.raises(EngineError):
            check_fits(replace(changed, context=context + 256), {"cuda": 19 * GIB}, "Llama")


@pytest.mark.parametrize(
    ("repo", "card"),
    [("meta-llama/Llama-3.1-8B-Instruct", 8), ("Qwen/Qwen3-8B", 8), ("Qwen/Qwen3.5-9B", 8), ("Qwen/Qwen3-14B", 12)],
)
def test_a_card_holds_what_its_embeddings_do_not_take(repo: str, card: int) -> None:
    """In 4 bits with 8,192 tokens, on a card most of which is free; main memory may be too small or not lockable."""
    c = UNLIKE[repo] if repo in UNLIKE else of(SHAPES[repo])
    whole, table = plan(Model(c, "cuda", "nf4"), None, 8192), 2 * c.vocab * c.hidden

    def on(main: int, lockable: int | None) -> Plan:
        return making_room(replace(whole, lockable=lockable), {"cuda": int(0.94 * card * GIB), "cpu": main})

    chosen, unlocked, tight = on(8 * GIB, None), on(8 * GIB, GIB // 2), on(GIB // 2, None)
    assert fits(chosen, {"cuda": int(0.94 * card * GIB), "cpu": 8 * GIB})
    assert chosen.need("cpu").weights == chosen.locked == table
    for other in (unlocked, tight):
        assert (other.locked, other.need("cuda").total) == (0, chosen.need("cuda").total + table)


def test_keys_and_values_in_8_bits_are_advised_where_they_hold_the_context(shape: Callable[..., ModelConfig]) -> None:
    planned = pair_of(shape, "cuda", context=65536)
    advice = nearest(planned, {"cuda": 22 * GIB})
    assert advice.endswith(', or with cache = "int8".')
    check_fits(planned.with_int8_cache(), {"cuda": 22 * GIB}, "Llama")
    assert "int8" not in nearest(planned.with_int8_cache(), {"cuda": 20 * GIB})


@pytest.mark.parametrize(
    ("quant", "free", "main", "advice"),
    [
        (None, 13, 64, 'It fits with quant = "int8" for the target.'),
        (None, 8, 64, 'It fits with quant = "nf4" for the target.'),
        ("int8", 8, 64, 'It fits with quant = "nf4" for the target.'),
        (None, 5.4, 64, 'It fits with quant = "nf4" for the target and context = 1024.'),
        ("nf4", 4, 64, 'It fits with device = "cpu".'),
        (None, 4, 16, 'It fits with device = "cpu" and quant = "int8" for the target.'),
        (None, 4, 4, "No setting makes it fit: choose a smaller pair"),
    ],
)
def test_the_nearest_setting_is_told(
    quant: Quant | None, free: float, main: int, advice: str, shape: Callable[..., ModelConfig]
) -> None:
    message = refusal(pair_of(shape, "cuda", quant), cuda=int(free * GIB), cpu=main * GIB)
    assert advice in message


def test_a_quantised_checkpoint_is_not_told_to_be_quantised(shape: Callable[..., ModelConfig]) -> None:
    planned = plan(Model(shape(**LLAMA), "cpu", "int8", by_quant("int8")), None, 8192)
    assert "No setting makes it fit" in refusal(planned, cpu=6 * GIB)


def test_a_matrix_whose_blocks_go_on_across_rows_counts_as_dense(shape: Callable[..., ModelConfig]) -> None:
    """down_proj alone has inputs that 64 does not divide."""
    c = shape(**(LLAMA | {"intermediate": 14352}))
    for place, dense in (("cpu", 4), ("cuda", 2)):
        more = need(Model(c, place, "nf4"), 64).weights - need(Model(shape(**LLAMA), place, "nf4"), 64).weights
        assert more == pytest.approx(32 * 4096 * 14352 * dense - 0.53 * 32 * 4096 * 14336, rel=0.03)


def test_the_draft_counts_where_it_is(shape: Callable[..., ModelConfig]) -> None:
    small = shape(hidden=256, context=4096)
    together = plan(Model(shape(**LLAMA), "cuda"), Model(small, "cuda"), 4096)
    apart = replace(together, draft=Model(small, "cpu"))
    alone = plan(together.target, None, 4096).need("cuda")
    assert alone.total > need(together.target, 4096).total + GPU_RUNTIME, "verifying takes buffers of its own"
    assert apart.need("cuda") == alone
    assert apart.need("cpu").total > 0
    both = together.need("cuda")
    assert both.total == alone.total + need(replace(apart.draft, place="cuda"), 4096).total
    assert together.on("cpu").need("cpu").workspace == need(replace(together.target, place="cpu"), 4096).workspace
    table = 2 * together.target.config.vocab * together.target.config.hidden
    assert plan(together.target, None, 4096).need("cpu") == Need(table, 0, 0)


def test_a_target_that_fits_without_its_draft_is_not_cut_for_it(shape: Callable[..., ModelConfig]) -> None:
    target = Model(shape(**LLAMA), "cuda", "nf4", experts_in_main=3)
    pair, alone = plan(target, target, 4096), replace(target, experts_in_main=0)
    free = int(plan(alone, None, 4096).need("cuda").total / (1 - SPARE)) + 1
    roomy: dict[Place, int | None] = {"cuda": free, "second-gpu": 20 * GIB}
    assert not fits(pair, roomy)
    assert not for_both(pair, roomy)
    assert for_both(pair, {**roomy, "cuda": free - 2})
    assert not for_both(pair, {"cuda": free - 2, "second-gpu": 0})
    assert cut_in_two(pair, roomy).target.experts_in_main == 0


def test_the_largest_that_the_gpu_kernels_take_is_taken(shape: Callable[..., ModelConfig]) -> None:
    most = {"hidden": WIDEST, "heads": 2 * SHARING_HEADS, "kv_heads": 2, "head_dim": WIDEST_HEAD}
    assert unsupported(shape(**(LLAMA | most))) == ""
    assert "32 query heads a key head" in unsupported(shape(**(LLAMA | most | {"kv_heads": 1})))


def test_bits_that_a_checkpoint_has_are_no_setting(shape: Callable[..., ModelConfig]) -> None:
    open_target = Model(shape(**LLAMA), "cuda", "int8")
    four = need(replace(open_target, quant="nf4"), 1024).total + 2 * GPU_RUNTIME
    short: dict[Place, int | None] = {"cuda": int(four / (1 - SPARE)), "cpu": 2 * GIB}
    assert 'quant = "nf4" for the target' in nearest(plan(open_target, None, 1024), short)
    fixed = replace(open_target, stored=by_quant("int8"))
    assert "No setting makes it fit" in nearest(plan(fixed, None, 1024), short)


def test_graphs_and_modules_have_room_on_a_gpu(shape: Callable[..., ModelConfig]) -> None:
    """On one of 8 GB the spare share would leave them none."""
    assert plan(Model(shape(), "cuda"), None, 64).need("cuda").total > GPU_RUNTIME
    assert plan(Model(shape(), "cpu"), None, 64).need("cuda").total == 0
    assert GPU_RUNTIME > 8e9 * SPARE / 2


def test_a_context_is_cut_to_the_targets(shape: Callable[..., ModelConfig]) -> None:
    assert plan(Model(shape(context=300), "cpu"), None, 8192).context == 300


def test_scales_that_are_not_nested_cost_more(shape: Callable[..., ModelConfig]) -> None:
    model = Model(shape(**LLAMA), "cuda", "nf4", by_quant("nf4"))
    unnested = FourBitFloats("nf4", (), nested=False)
    nested, plain = (need(replace(model, stored=one), 64).weights for one in (model.stored, unnested))
    layers = 32 * (4096 * 128 * (64 + 16) + 3 * 4096 * 14336)
    assert plain - nested == pytest.approx((0.5625 - 0.516) * layers, rel=0.05)


def drafted(shape: Callable[..., ModelConfig], place: Place = "cuda", small: bool = False) -> Plan:
    """A large target with a draft of Qwen3-0.6B's shape, or of a `small` one, that nobody said anything of."""
    draft = of(SHAPES["Qwen/Qwen3-0.6B"])
    if small:
        draft = shape(hidden=1024, intermediate=3072, layers=2, heads=16, kv_heads=8, head_dim=128, vocab=32_000)
    return plan(Model(shape(**LLAMA), place, "nf4"), Model(draft, place), 4096)


def kept(planned: Plan) -> tuple[Quant | None, Quant | None]:
    assert planned.draft is not None
    return planned.draft.quant, planned.draft.head


def test_a_draft_on_a_gpu_is_read_as_8_bits(shape: Callable[..., ModelConfig]) -> None:
    assert kept(drafting(drafted(shape), {"cuda": 24 * GIB})) == ("int8", "int8")
    assert kept(drafting(drafted(shape), {})) == ("int8", "int8")
    assert kept(drafting(drafted(shape, "cpu"), {"cpu": 24 * GIB})) == (None, None)


def test_a_small_draft_stays_as_it_is_while_it_fits(shape: Callable[..., ModelConfig]) -> None:
    small = drafted(shape, small=True)
    assert small.draft is not None
    assert small.draft.config.parameters() < MIN_PARAMETERS
    assert kept(drafting(small, {"cuda": 24 * GIB})) == (None, None)
    needed = small.need("cuda").total
    assert kept(drafting(small, {"cuda": int((needed - 1) / (1 - SPARE))})) == ("int8", "int8")


def test_a_draft_goes_to_4_bits_where_the_pair_fits_no_other_way(shape: Callable[..., ModelConfig]) -> None:
    wanted = drafted(shape)
    eight = drafting(wanted, {})
    short = {"cuda": int((eight.need("cuda").total - 1) / (1 - SPARE))}
    assert kept(drafting(wanted, short)) == ("nf4", "int8")
    assert kept(drafting(wanted, {"cuda": GIB})) == ("int8", "int8"), "what is refused is told with what was wanted"


def untied_config(c: ModelConfig) -> ModelConfig:
    head = replace(c.recipe.head, names=("lm_head",))
    return replace(c, recipe=replace(c.recipe, head=head))


def test_a_quantised_head_counts_beside_its_embedding(shape: Callable[..., ModelConfig]) -> None:
    wanted = drafted(shape).draft
    assert wanted is not None
    table = wanted.config.vocab * wanted.config.hidden
    body = need(replace(wanted, quant="int8"), 64).weights
    small = quantised(wanted, "int8")
    in_main = body + table + 4 * wanted.config.vocab - 2 * table
    assert (need(small, 64).weights, locked_bytes(small)) == (in_main, 2 * table)
    assert need(replace(small, tables_on_gpu=True), 64).weights == in_main + 2 * table
    untied = replace(wanted, config=untied_config(wanted.config))
    assert need(untied, 64).weights == need(wanted, 64).weights
    assert need(replace(untied, tables_on_gpu=True), 64).weights == need(wanted, 64).weights + 2 * table
    on_cpu = replace(wanted, place="cpu")
    assert need(quantised(on_cpu, "int8"), 64) == need(replace(on_cpu, quant="int8"), 64)


def test_a_draft_that_goes_to_the_cpu_leaves_there_what_was_chosen_for_the_gpu(
    shape: Callable[..., ModelConfig],
) -> None:
    chosen = drafting(drafted(shape), {})
    assert kept(chosen.on("cpu")) == (None, None)
    assert chosen.draft is not None
    asked = replace(chosen, draft=replace(chosen.draft, chosen=False))
    assert kept(asked.on("cpu"))[0] == "int8"
    assert 'quant = "nf4" for the draft' in nearest(
        replace(asked, target=replace(asked.target, stored=by_quant("nf4"))).with_int8_cache(),
        {"cuda": int(6.9 * GIB), "cpu": 1},
    )

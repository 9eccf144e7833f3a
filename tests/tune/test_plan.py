"""The estimate of what a tune takes, and who cannot be tuned."""

from dataclasses import replace
from pathlib import Path

import pytest

from specchat.bench.published import narrowed
from specchat.engine.protocol.pair_info import DraftFacts, PairInfo, PairServer, PlainFacts
from specchat.engine.weights.config import ModelConfig, parse_config
from specchat.tune import exits
from specchat.tune.families import FAMILIES
from specchat.tune.plan import LARGEST_WHOLE, TunePlan, recommend_memory, training_plan, tune_plan, unsupported
from tests.fake import INFO
from tests.parts import changed


def target(hidden: int, layers: int, vocab: int = 3072) -> ModelConfig:
    """The shapes that `measure.tune_memory` writes."""
    return parse_config(
        Path(),
        {
            "model_type": "llama", "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
            "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": vocab, "max_position_embeddings": 1024,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
            "eos_token_id": 1, "torch_dtype": "float32",
        },
    )  # fmt: skip


TARGET, SMALL, WIDE = target(640, 8), target(384, 4), target(384, 4, 32_000)
MADE = changed(INFO, memory=291_000_000)
PEAKS = (
    ("medusa", TARGET, 291_000_000, 1_784_000_000),
    ("eagle3", TARGET, 291_000_000, 3_779_000_000),
    ("dflash", TARGET, 291_000_000, 2_822_000_000),
    ("exit", TARGET, 291_000_000, 1_754_000_000),
    ("medusa", SMALL, 73_000_000, 1_080_000_000),
    ("eagle3", SMALL, 73_000_000, 2_710_000_000),
    ("dflash", SMALL, 73_000_000, 1_927_000_000),
    ("exit", SMALL, 73_000_000, 1_066_000_000),
    ("medusa", WIDE, 251_000_000, 2_893_000_000),
    ("eagle3", WIDE, 251_000_000, 4_491_000_000),
    ("dflash", WIDE, 251_000_000, 3_522_000_000),
    ("exit", WIDE, 251_000_000, 1_719_000_000),
)
"""Tunes of `measure.tune_memory`, with the bytes of the loaded pair."""


def test_faster_pairs_more_cores_and_smaller_drafts_take_less_time() -> None:
    plan = tune_plan(INFO, 2)
    assert tune_plan(replace(INFO, plain=PlainFacts(200.0)), 2).replies_s == plan.replies_s / 2
    assert tune_plan(INFO, 8).training_s < plan.training_s
    assert tune_plan(replace(INFO, draft=DraftFacts(10**8)), 2).training_s > 2 * plan.training_s
    assert plan.seconds == plan.replies_s + plan.training_s + plan.measuring_s


def test_memory_holds_what_trainings_took() -> None:
    """Peaks of `specchat tune draft`: the demo's, and those of `measure.tune_memory`."""
    for weights, tables, vocab, loaded, adapted, peak in (
        (660_000, 330_000, 2048, 48 << 20, False, 787 << 20),
        (35_000_000, 3_146_000, 3072, 202_000_000, False, 3_782_000_000),
        (20_320_000, 3_932_000, 3072, 291_000_000, False, 2_226_000_000),
        (20_320_000, 3_932_000, 3072, 291_000_000, True, 2_150_000_000),
        (5_310_000, 2_359_000, 3072, 73_000_000, False, 1_050_000_000),
        (5_310_000, 2_359_000, 3072, 73_000_000, True, 986_000_000),
        (27_530_000, 24_576_000, 32_000, 251_000_000, False, 2_063_000_000),
        (27_530_000, 24_576_000, 32_000, 251_000_000, True, 1_981_000_000),
    ):
        target = replace(INFO.target, vocabulary=vocab)
        of = changed(INFO, target=target, draft=DraftFacts(weights, tables=tables), memory=loaded)
        plan = tune_plan(of, adapted=adapted)
        assert peak <= plan.memory <= 1.5 * peak, (weights, adapted, plan.memory / peak)


def planned(kind: str, info: PairInfo = MADE, of: ModelConfig = TARGET) -> TunePlan:
    """Of heads or an exit for a target."""
    places = exits.exits(of.layers, None)
    size = exits.size(of, places) if kind == "exit" else FAMILIES[kind].size(of)  # type: ignore[index]
    return training_plan(info, size, 512, 1000, 2)


@pytest.mark.parametrize(("kind", "of", "loaded", "peak"), PEAKS)
def test_memory_holds_what_trainings_of_heads_and_exits_took(
    kind: str, of: ModelConfig, loaded: int, peak: int
) -> None:
    assert peak <= planned(kind, changed(INFO, memory=loaded), of).memory <= 1.5 * peak


@pytest.mark.parametrize(("loaded", "peak"), [(291_000_000, 960_000_000), (73_000_000, 556_000_000)])
def test_memory_holds_what_recommend_took(loaded: int, peak: int) -> None:
    assert peak <= recommend_memory(changed(INFO, memory=loaded)) <= 1.5 * peak


def test_a_large_vocabulary_takes_more_memory_and_a_slow_target_more_time() -> None:
    wide = narrowed(TARGET, vocab=150_000)
    for kind, family in FAMILIES.items():
        assert family.size(wide).step_bytes > 2 * 8 * 256 * 150_000 * 4
        assert planned(kind, replace(MADE, plain=PlainFacts(1.0))).seconds > 2 * planned(kind).seconds


def test_a_draft_that_is_trained_whole_takes_sixteen_bytes_a_weight_beside_the_pair() -> None:
    whole = tune_plan(replace(INFO, draft=DraftFacts(LARGEST_WHOLE)))
    adapted = tune_plan(replace(INFO, draft=DraftFacts(LARGEST_WHOLE + 1)))
    assert whole.memory - adapted.memory == pytest.approx(12 * LARGEST_WHOLE, rel=0.01)
    # What a step computes grows with a draft up to a bound.
    small, large = (tune_plan(replace(INFO, draft=DraftFacts(count))).memory for count in (10**7, 2 * 10**7))
    assert large - small == pytest.approx(91 * 10**7, rel=0.01)
    assert tune_plan(changed(INFO, memory=INFO.load.memory + 1000)).memory > tune_plan(INFO).memory


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (INFO, ""),
        (changed(INFO, server=PairServer("vLLM")), "A server runs this pair"),
        (replace(INFO, draft=DraftFacts()), "no draft model"),
        (changed(INFO, gpu="GPU-1"), ""),
    ],
)
def test_a_pair_that_cannot_be_tuned_says_why(info: PairInfo, words: str) -> None:
    assert words in unsupported(info)
    assert bool(words) == bool(unsupported(info))


ON_GPU = changed(
    INFO,
    gpu="GPU-1",
    memory=6 * 10**9,
    draft=DraftFacts(10**8),
    target=replace(INFO.target, tables=10**9, vocabulary=128_000),
    context=8192,
)


def test_on_a_gpu_the_layers_of_the_target_make_way_for_the_training() -> None:
    plan = tune_plan(ON_GPU)
    trainer = 16 * 10**8 + 2_400_000_000 + 1_200_000_000
    assert 0 < plan.gpu - trainer - 2 * 10**9 < 1.5 * 10**9
    # A pair that takes more than its training decides.
    assert tune_plan(changed(ON_GPU, memory=20 * 10**9)).gpu > 20 * 10**9
    # Main memory has what is read and written, and not the pair.
    assert plan.memory < 5 * 10**9
    heads = training_plan(ON_GPU, FAMILIES["eagle3"].size(TARGET), 512, 1000)
    assert heads.gpu > ON_GPU.load.memory
    assert tune_plan(changed(ON_GPU, gpu="")).gpu == 0


def test_in_main_memory_a_pair_of_the_gpu_is_read_once_more() -> None:
    here, there = tune_plan(ON_GPU, 4, on_cpu=True), tune_plan(ON_GPU, 4)
    assert (here.gpu, here.memory) == (0, tune_plan(changed(ON_GPU, gpu=""), 4).memory)
    assert here.training_s > there.training_s
    assert here.replies_s > there.replies_s

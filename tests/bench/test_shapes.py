"""Synthetic acceptance: costs of real steps, projections that say they are projections."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from specchat.bench import published as published_module
from specchat.bench import shapes as shapes_module
from specchat.bench import synthetic as synthetic_module
from specchat.bench.published import PUBLISHED, Shapes, experts, shaped
from specchat.bench.shapes import (
    CONTEXT,
    LENGTHS,
    StepCost,
    as_json,
    project,
    step_costs,
    synthetic,
    text,
)
from specchat.bench.summary import Spread
from specchat.bench.synthetic import beside_tensors, check_room, on_device, on_host, planned, write_random
from specchat.cli.bench import bench
from specchat.cli.bench_shapes import QUANTS, SHAPES
from specchat.cli.exit_codes import ExitCode
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.step import Decoding
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Acceptance
from specchat.engine.recipe import Experts
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig

BILLIONS = {
    # Parameters by the model cards.
    "Qwen3-8B": 8.19,
    "Qwen3-0.6B": 0.596,
    "Llama-3.1-8B": 8.03,
    "Llama-3.2-1B": 1.236,
    "Qwen2.5-14B": 14.77,
    "Qwen2.5-0.5B": 0.494,
    "Qwen3-30B-A3B": 30.53,
}


def tiny(config: ModelConfig, layers: int = 2) -> ModelConfig:
    sparse = experts(4, 2, 32) if isinstance(config.recipe.layers[0].feed, Experts) else {}
    return shaped(config.family, 32, 64, layers, 2, 1, 16, 64, 1024, 1e6, config.tied, **sparse)


TINY = Shapes("tiny", "Tiny-8B", "Tiny-0.6B", tiny(published_module.QWEN3_8B), tiny(published_module.QWEN3_06B, 1))


def flat(ms: float) -> Spread:
    return Spread(ms, ms, ms, 5)


def cost(length: int, draft: float, verify: float, other: float) -> StepCost:
    return StepCost(length, flat(draft), flat(verify), flat(other), flat(draft + verify + other))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads that share a core with another program wait for each other at every product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Shapes.


@pytest.mark.parametrize("shapes", PUBLISHED.values(), ids=list(PUBLISHED))
def test_the_shapes_have_as_many_parameters_as_the_model_cards_say(shapes: Shapes) -> None:
    for name, config in ((shapes.target_name, shapes.target), (shapes.draft_name, shapes.draft)):
        assert config.parameters() / 1e9 == pytest.approx(BILLIONS[name], rel=0.003)


def test_the_command_offers_the_shapes_there_are() -> None:
    assert tuple(PUBLISHED) == SHAPES


def test_layers_are_cut_in_proportion_and_said_to_be_left_out() -> None:
    whole = PUBLISHED["qwen3-8b"]
    cut = whole.cut(9)
    assert (cut.target.layers, cut.draft.layers) == (9, 7)
    assert whole.cut(1).draft.layers == 1
    assert whole.cut(None) == whole.cut(36) == whole.cut(99) == whole


# The projection.


def test_the_projection_is_tokens_over_the_measured_time_of_the_whole_step() -> None:
    plain, drafting = project([cost(0, 0, 10, 0), cost(1, 3, 10, 2)], 0.5)
    assert (plain.projected_tokens_per_second, plain.projected_times_plain) == (100.0, 1.0)
    assert drafting.assumed_tokens_a_step == 1.5
    assert drafting.projected_tokens_per_second == pytest.approx(100.0)
    assert drafting.projected_times_plain == pytest.approx(1.0)


def test_a_draft_that_is_never_kept_only_costs() -> None:
    _, drafting = project([cost(0, 0, 10, 0), cost(5, 5, 10, 0)], 0.0)
    assert drafting.projected_times_plain == pytest.approx(10 / 15)


# Random pairs.


def test_a_random_checkpoint_reads_back_with_its_shapes(tmp_path: Path) -> None:
    for number, shapes in enumerate(PUBLISHED.values()):
        config = tiny(shapes.target)
        folder = write_random(tmp_path / str(number), config, 0)
        again = Checkpoint.open(folder).config
        assert again.recipe == config.recipe


def test_a_draft_is_kept_as_in_a_pair_that_says_nothing_of_it() -> None:
    for place, quant in (("cuda", "int8"), ("cpu", None)):
        target, draft = planned(PUBLISHED["qwen3-8b"], "nf4", CONTEXT, place).models
        assert (target.quant, draft.quant, draft.head) == ("nf4", quant, quant)


def check_costs(runner: Runner) -> None:
    ticks = iter(range(10**9))
    told: list[float] = []
    costs = step_costs(runner, told.append, lambda: True, lambda: float(next(ticks)) / 1e3)
    assert [c.length for c in costs] == list(LENGTHS)
    assert all(c.step_ms.n == shapes_module.STEPS for c in costs)
    assert all(c.draft_ms.median > 0 for c in costs[1:])
    assert all(c.verify_ms.low > 0 for c in costs)
    assert told == sorted(told)
    assert runner.target.tokens == []


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes_module, "ROUNDS", 1)
    monkeypatch.setattr(shapes_module, "WARM_UP", 1)
    monkeypatch.setattr(shapes_module, "STEPS", 2)
    monkeypatch.setattr(shapes_module, "PROMPT_TOKENS", 8)


@pytest.fixture
def drafted(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int]]:
    """The length asked for and the tokens drafted, of every step."""
    step, seen = Decoding.step, set[tuple[int, int]]()

    def noted(decoding: Decoding, drafter: Drafter, length: int, acceptance: Acceptance) -> StepOutcome:
        outcome = step(decoding, drafter, length, acceptance)
        seen.add((length, outcome.drafted))
        return outcome

    monkeypatch.setattr(Decoding, "step", noted)
    return seen


@pytest.mark.usefixtures("one_round")
@pytest.mark.parametrize("quant", [None, "nf4"])
def test_steps_of_a_random_pair_are_measured_on_the_cpu(quant: Any, drafted: set[tuple[int, int]]) -> None:
    """All of their length: random weights are sure of nothing, yet what is projected is the cost of whole drafts."""
    check_costs(on_host(TINY, quant, CONTEXT))
    assert drafted == {(length, length) for length in LENGTHS}


@pytest.mark.usefixtures("one_round")
def test_steps_of_a_random_pair_are_measured_in_the_kernels(
    monkeypatch: pytest.MonkeyPatch, drafted: set[tuple[int, int]]
) -> None:
    gpu = torch.cuda.is_available()
    if not gpu:
        monkeypatch.setattr(shapes_module, "LENGTHS", (0, 3))
        monkeypatch.setattr("tests.bench.test_shapes.LENGTHS", (0, 3))
    device = torch.device("cuda" if gpu else "cpu")
    runner = on_device(TINY, None, 128, device, torch.bfloat16 if gpu else torch.float32)
    check_costs(runner)
    assert drafted == {(length, length) for length in LENGTHS}


@pytest.mark.usefixtures("one_round")
def test_nothing_more_is_measured_once_it_is_not_wanted() -> None:
    answers = iter([True, True, False])
    costs = step_costs(on_host(TINY, None, CONTEXT), lambda _: None, lambda: next(answers, False))
    assert [c.length for c in costs] == list(LENGTHS[:2])


def test_a_pair_that_does_not_fit_says_so_before_anything_is_made() -> None:
    with pytest.raises(EngineError, match=r"qwen3-8b with 36 layers needs .* GiB and 4\.0 GiB are free\..*--layers"):
        check_room(PUBLISHED["qwen3-8b"], None, CONTEXT, "cpu", 4 << 30)
    check_room(PUBLISHED["qwen3-8b"].cut(1), None, CONTEXT, "cpu", 1 << 34)
    check_room(PUBLISHED["qwen3-8b"], "nf4", CONTEXT, "cuda", 12 << 30)
    check_room(PUBLISHED["qwen3-8b"], None, CONTEXT, "cpu", None)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        free = 10

    monkeypatch.setattr(synthetic_module.shutil, "disk_usage", lambda _: Full)
    with pytest.raises(EngineError, match=r"and 0\.0 GiB are free"):
        on_host(TINY, None, CONTEXT)


# What is shown.

LOUD = "SYNTHETIC: random weights"


@pytest.fixture(scope="module")
def runner() -> Runner:
    return on_host(TINY, None, CONTEXT)


def test_every_output_says_that_the_acceptance_is_assumed(runner: Runner) -> None:
    report = synthetic(TINY, TINY, "nf4", runner, [cost(0, 0, 10, 0), cost(5, 5, 12, 1)], 0.7, "a machine")
    lines = text(report).splitlines()
    assert lines[0].startswith(LOUD)
    assert "0.70 is ASSUMED, not measured" in lines[0]
    assert lines[1] == "a machine"
    assert lines[2].startswith("Tiny-8B, 2 layers (nf4), draft Tiny-0.6B, 1 layers; cpu")
    assert "assumed tokens/step  projected tok/s  projected x plain" in lines[4]
    assert lines[6].split() == ["5", "5.00", "12.00", "1.00", "18.00", "18.00-18.00", "2.94", "163.4", "1.63"]
    data = json.loads(json.dumps(as_json(report)))
    assert data["synthetic"] is True
    assert LOUD in data["statement"]
    # No name that a measured run gives its figures.
    names = set(data) | {name for entry in data["costs"] + data["projections"] for name in entry}
    assert not names & {
        "mean_acceptance_length",
        "draft_acceptance_rate",
        "acceptance_rate",
        "tokens_per_second",
        "speedup_vs_plain",
        "over_plain",
    }


def test_modules_and_graphs_are_told_beside_what_is_planned(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPU alone: what is in use there and is not torch's."""
    told = {"synchronize": None, "mem_get_info": (60 << 20, 1000 << 20), "memory_reserved": 640 << 20}
    for name, made in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, made=made: made)
    runtime = beside_tensors(torch.device("cuda", 0))
    report = synthetic(TINY, TINY, None, runner, [cost(0, 0, 10, 0)], 0.7, "a machine", runtime)
    assert text(report).splitlines()[3] == "modules and graphs: 300 MiB, 256 MiB are planned"
    assert as_json(report)["runtime"] == 300 << 20


def test_a_cut_model_says_that_no_figure_is_the_whole_models(runner: Runner) -> None:
    cut = TINY.cut(1)
    report = synthetic(cut, TINY, None, runner, [cost(0, 0, 10, 0)], 0.7, "a machine")
    assert "no figure is the whole model's" in text(report)
    assert "Tiny-8B, 1 of 2 layers (unquantised)" in text(report)


def test_without_plain_nothing_is_projected(runner: Runner) -> None:
    assert synthetic(TINY, TINY, None, runner, [cost(5, 5, 12, 1)], 0.7, "a machine").projections == ()


# The options.


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(bench, list(arguments))


@pytest.mark.usefixtures("one_round")
def test_the_command_measures_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, "qwen3-8b", TINY)
    monkeypatch.setattr("specchat.engine.hardware.gpu.find_gpu", lambda: "no GPU here")
    file = tmp_path / "s.json"
    result = invoke("--shapes", "qwen3-8b", "--quant", "none", "--acceptance", "0.9", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(LOUD)
    data = json.loads(file.read_text())
    assert (data["assumed_acceptance"], data["quant"]) == (0.9, None)
    assert [p["length"] for p in data["projections"]] == list(LENGTHS)


@pytest.mark.usefixtures("one_round")
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, "qwen3-8b", TINY)
    monkeypatch.setattr("specchat.engine.hardware.gpu.find_gpu", lambda: "no GPU here")
    steps = shapes_module._steps

    def interrupted(*arguments: Any) -> Any:
        if arguments[3] == LENGTHS[1]:
            signal.raise_signal(signal.SIGINT)
        return steps(*arguments)

    monkeypatch.setattr(shapes_module, "_steps", interrupted)
    result = invoke("--shapes", "qwen3-8b", "--quant", "none", "--json", str(tmp_path / "s.json"))
    assert result.exit_code == ExitCode.INTERRUPTED, result.output
    assert len(json.loads((tmp_path / "s.json").read_text())["costs"]) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--layers", "1"], "--layers goes with --shapes."),
        (["--acceptance", "0.5"], "--acceptance goes with --shapes."),
        (["--shapes", "qwen3-8b", "--pair", "demo"], "--pair has no meaning with --shapes"),
        (["--shapes", "qwen3-8b", "--json", "/nowhere/s.json"], "there is no folder"),
        (["--shapes", "qwen3-8b", "--tokens", "9"], "--tokens has no meaning with --shapes"),
        (["--shapes", "qwen3-9b"], '"qwen3-9b" is not one of'),
        (["--shapes", "qwen3-8b", "--acceptance", "1.5"], "1.5 is not in the range"),
        (["--shapes", "qwen3-8b", "--layers", "0"], "0 is not in the range"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], sentence: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert sentence in result.stderr


def test_the_quantisations_are_those_of_the_engine_and_none() -> None:
    from typing import get_args

    from specchat.engine.protocol.pair import Wanted

    assert set(QUANTS) == set(get_args(Wanted))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_few_layers_of_qwen3_8b_are_measured_in_captured_graphs() -> None:
    shapes = PUBLISHED["qwen3-8b"].cut(2)
    pair = on_device(shapes, "nf4", CONTEXT, torch.device("cuda"), torch.bfloat16)
    assert "captured graphs" in pair.exactness
    costs = step_costs(pair, lambda _: None, lambda: True)
    assert [c.length for c in costs] == list(LENGTHS)

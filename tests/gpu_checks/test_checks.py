"""The checks of the GPU path find what is planted, and nothing where nothing is."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.formats.gguf import TYPES
from specchat.engine.gpu_checks import (
    attention,
    blocks,
    card,
    drafts,
    environment,
    experts,
    kernels,
    layers,
    place,
    remembered,
    rows,
    short_convs,
    states,
)
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.hardware.gpu import Gpu
from specchat.engine.kernels import expert_products, products
from specchat.engine.kernels.attention import Scoring
from specchat.engine.kernels.processors import as_with
from specchat.engine.kernels.stored import StoredWeight, stored

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")

Multiply = Callable[..., None]


def run(check: Callable[..., None], *arguments: Any) -> Notes:
    notes = Notes()
    check(notes, *arguments)
    return notes


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16], ids=str)
def test_all_is_right_under_the_interpreter(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own precision, and in that of a GPU."""
    monkeypatch.setattr(kernels.place, "dtype", lambda: dtype)
    notes = run(kernels.all_kernels)
    assert notes.wrong == []
    assert {row["what"] for row in notes.rows} >= {"embed", "norm", "product nf4", "tree attention", "verdict filters"}
    assert {row["what"] for row in notes.rows} >= {"activation gelu_tanh", "tree attention in a window"}
    notes = run(remembered.quick)
    assert notes.wrong == []
    assert {row["what"] for row in notes.rows} >= {"product dense", "attention", "tree", "captured product"}


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16], ids=str)
def test_experts_are_right_under_the_interpreter(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts.place, "dtype", lambda: dtype)
    notes = run(experts.values, "nf4")
    experts.alone(notes, None, (2, 17))
    experts.in_main(notes, "int8")
    assert notes.wrong == []
    told = [row["what"] for row in notes.rows]
    assert told == ["experts nf4", "experts dense", "experts dense", "experts int8 in main memory"]


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16], ids=str)
def test_blocks_are_right_under_the_interpreter(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks.place, "dtype", lambda: dtype)
    monkeypatch.setattr(blocks, "FORMS", blocks.FORMS[:1])
    monkeypatch.setattr(blocks, "COMPANY", (2, 17))
    notes = run(blocks.blocks)
    assert notes.wrong == []
    assert {row["what"].replace(" with silu", "") for row in notes.rows} == {
        *("product Q4_K", "embed Q4_K", "product of parts"),
        *("experts Q4_K and Q6_K", "experts Q4_K and Q6_K in main memory"),
    }


def test_a_way_to_unpack_is_that_of_one_type_at_least() -> None:
    """Each type of GGUF is unpacked as one of those that are checked."""
    ways = {kind: stored(place.weight_of(kind, 32, 256), None) for kind in TYPES}

    def way(one: StoredWeight) -> tuple[Any, ...]:
        signs, (scales, minimums, *_) = one.tensors.planes.signs, one.tensors.factors
        return one.form, *(x is not None and x.dtype for x in (signs, scales, minimums))

    found = {kind: way(one) for kind, one in ways.items()}
    assert set(found.values()) == {found[kind] for kind in blocks.FORMS}


def test_an_embedding_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "embed", lambda *_, **__: None)
    assert "embed Q4_K: off by inf" in run(blocks.embedded, "Q4_K").wrong[0]


def test_other_bits_of_experts_in_main_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "values_in_main", lambda weight, _: replace(weight, values=weight.values + 1))
    assert run(experts.in_main, "int8").wrong == ["experts int8 in main memory: other bits than on the GPU"]


def test_a_row_with_anothers_expert_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is company: the first tile is that of the next expert."""
    multiply = expert_products.multiply

    def off(x: Tensor, weight: Any, bias: Any, out: Tensor, pairs: Any, count: int, *more: Any, **options: Any) -> None:
        if count > 1:
            pairs.experts[0] += 1
        multiply(x, weight, bias, out, pairs, count, *more, **options)

    monkeypatch.setattr(expert_products, "multiply", off)
    assert "experts nf4: off by" in run(experts.values, "nf4").wrong[0]
    assert "experts dense: rows [" in run(experts.alone, None, (2, 17)).wrong[0]


def test_a_product_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = kernels.multiply

    def off(x: Tensor, weight: Any, bias: Any, out: Tensor, count: int, **options: Any) -> None:
        multiply(x, weight, bias, out, count, **options)
        out.view(-1)[-1] += 1 if options else 0.01

    monkeypatch.setattr(kernels, "multiply", off)
    found = [words.partition(":")[0] for words in run(kernels.product, "nf4").wrong]
    assert found == ["product nf4", "product nf4 with silu"] * 4

    def lost(*arguments: Any, **_: Any) -> None:
        arguments[3].fill_(torch.nan)

    monkeypatch.setattr(kernels, "multiply", lost)
    assert "off by inf" in run(kernels.product, None).wrong[0]


@pytest.mark.parametrize("count", [1, 28, 82, 128, 132, 170])
def test_rows_in_wide_programs_are_compared_with_a_row_alone(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU of any size, of which nothing but the cut is looked at here."""
    seen = set[tuple[int, int]]()

    def launched(*arguments: Any) -> None:
        rows, cut = arguments[3], arguments[4]
        seen.add((rows, cut.outputs))

    monkeypatch.setattr(products, "launch", launched)
    monkeypatch.setattr(rows, "as_with", lambda _: as_with(count))
    run(rows.products, "nf4", (2, 8, 9))
    assert seen == {(1, 64), (2, 128), (8, 128), (9, 64)}


def test_a_row_that_knows_its_company_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its last bit, and where there are three tiles or four alone."""
    multiply = rows.multiply

    def aware(x: Tensor, weight: Any, bias: Any, out: Tensor, count: int, **options: Any) -> None:
        multiply(x, weight, bias, out, count, **options)
        if count > 32:
            out[..., 0, 3] = torch.nextafter(out[..., 0, 3], torch.full((), torch.inf, dtype=out.dtype))

    monkeypatch.setattr(rows, "multiply", aware)
    assert run(rows.products, None).wrong == [
        f"product dense{kind}: rows [0] of {count} differ from those rows alone"
        for kind in ("", " with silu")
        for count in (33, 64, 150)
    ]


CHECKS = layers.outputs, layers.company, layers.nodes


@pytest.mark.parametrize("what", layers.LAYERS)
def test_layers_with_a_state_are_looked_at(what: str) -> None:
    for check in CHECKS:
        notes = run(check, what)
        assert notes.rows
        assert notes.wrong == []


def test_a_convolution_that_knows_its_company_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    convolve = short_convs.short_conv

    def otherwise(partials: Tensor, *rest: Any) -> None:
        """As where rows are added up in another order in company."""
        convolve(partials, *rest)
        out, rows = rest[4:6]
        if rows > 1:
            out[0] = torch.nextafter(out[0], torch.full((), torch.inf))

    monkeypatch.setattr(short_convs, "short_conv", otherwise)
    assert [len(run(check, "short convolution").wrong) for check in CHECKS] == [0, 2, 1]


def test_a_state_that_is_replayed_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a product and a sum are fused in one of two places."""
    step = states.step

    def otherwise(state: Any, *rest: Any) -> None:
        step(state, *rest)
        state.states[1] = torch.nextafter(state.states[1], torch.full((), torch.inf))

    monkeypatch.setattr(states, "step", otherwise)
    assert len(run(layers.company, "recurrent layer").wrong) == 2
    assert run(layers.outputs, "recurrent layer").wrong == []


def test_a_tree_that_rounds_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = rows.run_attention

    def otherwise(
        query: Tensor, keys: Tensor, values: Tensor, start: int, masks: list[int] | None, of: Scoring
    ) -> Tensor:
        out = attend(query, keys, values, start, masks, of)
        if masks is not None:
            out[4, 0] = torch.nextafter(out[4, 0], torch.tensor(torch.inf))
        return out

    monkeypatch.setattr(rows, "run_attention", otherwise)
    assert run(rows.nodes, (200,)).wrong == ["tree after 200 entries: nodes [4] differ from the ends of their chains"]


def test_attention_of_another_mask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention.run_attention

    def blind(query: Tensor, keys: Tensor, values: Tensor, start: int, masks: list[int] | None, of: Scoring) -> Tensor:
        return attend(query, keys, values, start, masks and [mask & ~2 for mask in masks], of)

    monkeypatch.setattr(attention, "run_attention", blind)
    assert [words.partition(":")[0] for words in run(attention.attend).wrong] == ["tree attention"]


@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_that_is_off_by_one_is_found(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention.run_attention
    monkeypatch.setattr(
        attention, "run_attention", lambda *args: attend(*args[:-1], args[-1]._replace(window=args[-1].window + off))
    )
    found = run(attention.attend, 300, 4, 2, 256, attention.WINDOW).wrong
    assert [words.partition(":")[0] for words in found] == [
        f"{what} attention in a window" for what in ("chain", "prompt", "tree")
    ]


@pytest.mark.parametrize("name", ["choose", "commit"])
def test_a_verdict_that_is_not_the_hosts_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, name, lambda *_: None)
    if name == "choose":
        monkeypatch.setattr(kernels, "judge", lambda *_: None)
    assert len(run(kernels.verdicts).wrong) == len(kernels.SAMPLINGS)


def test_a_drawn_chain_that_is_judged_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "judge_block", drafts.judge)
    assert {words.partition(",")[0] for words in run(drafts.sampled).wrong} == {"verdict block"}


def test_a_tree_that_grows_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expand = drafts.expand

    def narrow(growth: Any, count: int) -> None:
        expand(growth, count)
        growth.pool.value[0] = 0.0

    monkeypatch.setattr(drafts, "expand", narrow)
    assert [words.partition(":")[0] for words in run(drafts.grown).wrong] == ["grown tree"]


def test_entries_that_stay_where_they_were_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "keep", lambda *_: None)
    assert run(kernels.moved).wrong == ["entries of a path: they are not those of its nodes, in order"]


def test_the_environment_tells_which_of_two_gpus_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the names that `doctor.gpu_report` goes by."""
    seen = SimpleNamespace(name="RTX 3060", major=8, minor=6, total_memory=1, uuid="b-1")
    monkeypatch.setattr(environment, "find_gpu", lambda: Gpu("RTX 3060", 1, index=1))
    monkeypatch.setattr(card, "known_by", lambda _: "RTX 3060 with a driver")
    for name, told in {"is_available": True, "device_count": 2, "get_device_properties": seen}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, told=told: told)
    found, *cards = run(environment.look).rows
    assert (found["gpu"], found["index"], found["known by"]) == ("RTX 3060", 1, "RTX 3060 with a driver")
    assert [(one["index"], one["uuid"]) for one in cards] == [(0, "b-1"), (1, "b-1")]


def test_the_environment_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVIDIA_API_KEY", "TORCH_HUB_TOKEN", "TRITON_SECRET", "CUDA_PASSWORD", "CUDA_ANYTHING"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    told = run(environment.look).rows[0]["variables"]
    assert told["CUDA_VISIBLE_DEVICES"] == "0"
    assert "hidden" not in told.values()
    assert not [name for name in environment.VARIABLES if any(word in name for word in ("KEY", "TOKEN", "SECRET"))]


def test_the_environment_says_why_there_is_no_gpu() -> None:
    (row,) = run(environment.look).rows
    assert "gpu" not in row
    assert row["none"]

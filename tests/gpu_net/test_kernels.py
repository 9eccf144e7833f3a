"""The kernels under the sanitiser, as they are and with a part left out, which it or a reference has to notice."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime.errors import InterpreterError

from specchat.engine.kernels import (
    activation,
    attention,
    candidates,
    choose,
    combine,
    commit,
    delta,
    delta_outputs,
    delta_rows,
    delta_state,
    embed,
    filters,
    growth,
    keep,
    kv_entries,
    layer_inputs,
    norm,
    pairs,
    partial_sums,
    paths,
    rope,
    route,
    row_tiles,
    scores,
    short_conv,
    unpack,
    unpack_blocks,
    weight_tiles,
)
from tests.gpu_net.kernel_cases import CASES, prepare
from tests.gpu_net.mutations import Mutation, planted
from tests.gpu_net.sanitiser import Findings, sanitised

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SANITISER, REFERENCE = "sanitiser", "reference"

NOTICED: list[tuple[str, Mutation, set[str]]] = [
    ("filters", Mutation(filters._gather, "barrier", "tl.debug_barrier"), {SANITISER}),
    ("filters", Mutation(choose._best, "other", "tl.load(scored.best + of_blocks"), {REFERENCE}),
    ("ratio", Mutation(filters.tokens, "mask", "tl.load(candidates"), {SANITISER}),
    ("filters", Mutation(filters._candidates, "other", "tl.load(listed.scores"), {REFERENCE}),
    ("filters", Mutation(filters._bound, "other", "tl.load(tops"), {REFERENCE}),
    ("scores", Mutation(scores._process, "mask", "tl.load(state.counts"), {SANITISER}),
    ("scores", Mutation(scores._process, "mask", "tl.store(scored.scores"), {SANITISER}),
    ("growth", Mutation(candidates._gather, "other", "tl.load(scored.scores"), {SANITISER, REFERENCE}),
    ("growth", Mutation(candidates._append, "other", "tl.load(growth.tops.score +"), {SANITISER, REFERENCE}),
    ("growth", Mutation(growth._settle, "mask", "tl.store(growth.places"), {SANITISER}),
    ("commit", Mutation(commit._commit, "mask", "tl.store(state.counts"), {SANITISER, REFERENCE}),
    ("commit", Mutation(commit._commit, "mask", "tl.store(state.report + 3 + i"), {SANITISER}),
    ("commit", Mutation(commit._commit, "mask", "tl.store(state.report + 4 + 3 * (ROWS + 1)"), {REFERENCE}),
    ("keep", Mutation(keep._keep, "mask", "tl.store(keys"), {SANITISER, REFERENCE}),
    ("chain", Mutation(kv_entries.load_entries, "mask", "tl.load(entries"), {REFERENCE}),
    ("chain", Mutation(attention._partial, "mask", "tl.store(of_mixed +"), {SANITISER, REFERENCE}),
    ("chain", Mutation(combine._combine, "mask", "tl.load(where"), {SANITISER}),
    ("sinks and gates", Mutation(combine.write_outputs, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("many rows", Mutation(combine.write_outputs, "mask", "tl.store(out"), {SANITISER}),
    ("chain in a window", Mutation(kv_entries.load_entries, "mask", "tl.load(entries"), {REFERENCE}),
    ("tree in a window", Mutation(paths.depths, "mask", "tl.load(places"), {SANITISER}),
    ("tree in a window", Mutation(attention._partial, "other", "tl.load(at.tree"), {REFERENCE}),
    ("nf4", Mutation(unpack.four_bit, "other", "tl.load(weight.factors.scales"), {REFERENCE}),
    ("int4 with zeros", Mutation(unpack.four_bit, "mask", "tl.load(weight.factors.zeros"), {SANITISER}),
    ("int4 with zeros", Mutation(row_tiles.load, "mask", "tl.load(weight.order"), {SANITISER}),
    ("dense", Mutation(weight_tiles.plain, "other", "tl.load(where"), {REFERENCE}),
    ("dense", Mutation(row_tiles.store, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("nf4 with silu", Mutation(row_tiles.store_activated, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("route", Mutation(route._route, "mask", "tl.store(out.shares"), {SANITISER, REFERENCE}),
    ("route", Mutation(pairs.cut_into_tiles, "mask", "tl.store(out.experts"), {SANITISER, REFERENCE}),
    ("route", Mutation(pairs._order, "mask", "tl.load(out.chosen"), {REFERENCE}),
    ("route", Mutation(pairs.place_pairs, "mask", "tl.store(out.places"), {SANITISER, REFERENCE}),
    ("route", Mutation(route._chosen, "mask", "tl.load(rule.correction"), {SANITISER}),
    ("route", Mutation(pairs._add_shared, "mask", "tl.store(out.shares"), {REFERENCE}),
    ("route", Mutation(pairs._add_shared, "mask", "tl.store(out.begins"), {REFERENCE}),
    ("experts, dense", Mutation(row_tiles.store, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("mix", Mutation(norm.write_norm, "mask", "tl.store(norm.out"), {SANITISER, REFERENCE}),
    ("mix", Mutation(partial_sums.summed, "other", "tl.load(first, mask"), {REFERENCE}),
    ("norm", Mutation(norm._add_rms_norm, "other", "tl.load(update.residual"), {REFERENCE}),
    ("norm", Mutation(norm.stored, "mask", "tl.store(update.residual"), {SANITISER, REFERENCE}),
    ("rope", Mutation(rope._rope_and_write, "mask", "tl.store(out.keys"), {SANITISER, REFERENCE}),
    ("rope", Mutation(rope._rope_and_write, "mask", "tl.load(norms.of_value.weight"), {SANITISER}),
    ("recurrent", Mutation(delta._stepped, "barrier", "tl.debug_barrier"), {SANITISER}),
    ("recurrent", Mutation(delta_rows._convolve, "mask", "tl.store(out.inputs"), {SANITISER, REFERENCE}),
    ("recurrent", Mutation(delta_rows._convolve, "mask", "tl.load(out.logged"), {SANITISER, REFERENCE}),
    ("recurrent", Mutation(partial_sums.summed, "mask", "tl.load(first"), {SANITISER}),
    ("recurrent", Mutation(delta_outputs._finish, "mask", "tl.store(logged.log"), {SANITISER, REFERENCE}),
    ("recurrent", Mutation(delta._step, "mask", "tl.load(state_at, mask"), {REFERENCE}),
    ("recurrent", Mutation(delta_state._keep_entries, "mask", "tl.store(own"), {SANITISER, REFERENCE}),
    ("short convolution", Mutation(short_conv._short_conv, "mask", "tl.store(entries"), {SANITISER, REFERENCE}),
    ("short convolution", Mutation(short_conv._short_conv, "mask", "tl.load(entries"), {SANITISER, REFERENCE}),
    ("short convolution", Mutation(short_conv._short_conv, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("silu", Mutation(activation._gate_mul, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("gelu", Mutation(activation._gate_mul, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("inputs of layers", Mutation(layer_inputs._make_inputs, "mask", "tl.load(table"), {SANITISER}),
    ("inputs of layers", Mutation(layer_inputs._gate_input, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
    ("embed", Mutation(embed._embed, "mask", "tl.load(weight.planes.low"), {SANITISER, REFERENCE}),
    ("blocks", Mutation(unpack_blocks.loaded, "mask", "tl.load(where"), {SANITISER}),
    ("blocks", Mutation(unpack_blocks._halves, "other", "tl.load(where"), {REFERENCE}),
    ("super-blocks", Mutation(unpack_blocks._bytes, "mask", "tl.load(where"), {SANITISER}),
    ("super-blocks", Mutation(unpack_blocks.supers_of, "mask", "tl.load(supers.to"), {SANITISER}),
    ("super-blocks without minimums", Mutation(unpack_blocks.supers_of, "mask", "tl.load(supers.to"), {SANITISER}),
    ("codebooks", Mutation(unpack_blocks.supers_of, "mask", "tl.load(supers +"), {SANITISER}),
    ("experts of unlike parts", Mutation(row_tiles.store, "mask", "tl.store(out"), {SANITISER, REFERENCE}),
]
"""What is left out, the case that is run so, and what notices it."""


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    prepare()


@pytest.fixture(scope="module")
def seen() -> dict[str, Findings]:
    """What the sanitiser saw in each case."""
    findings = {}
    for name, case in CASES.items():
        with sanitised() as findings[name]:
            case()
    return findings


@pytest.mark.parametrize("name", CASES)
def test_the_sanitiser_finds_nothing_in_a_kernel(seen: dict[str, Findings], name: str) -> None:
    assert seen[name].launches
    assert not seen[name].faults


def test_every_kernel_is_launched(seen: dict[str, Findings]) -> None:
    files = Path(embed.__file__).parent.glob("*.py")
    kernels = {name for file in files for name in re.findall(r"\b(_\w+)\[\(", file.read_text(encoding="utf-8"))}
    assert "_embed" in kernels
    assert kernels == set[str]().union(*(findings.launches for findings in seen.values()))


LONG = ("recurrent", "experts", "inputs")
"""Beginnings of cases that take seconds: of those one stands for the others, which are slow."""


def brief() -> list[Any]:
    """The mutations as parameters."""
    firsts = {start: next((one for one in NOTICED if one[0].startswith(start)), None) for start in LONG}
    rest = [one for one in NOTICED if one[0].startswith(LONG) and one not in firsts.values()]
    marks = [pytest.mark.slow if one in rest else () for one in NOTICED]
    return [pytest.param(*one, marks=mark, id=f"{one[0]}: {one[1]}") for one, mark in zip(NOTICED, marks, strict=True)]


@pytest.mark.rotated(3)
@pytest.mark.parametrize(("case", "mutation", "by"), brief())
def test_what_is_left_out_is_noticed(case: str, mutation: Mutation, by: set[str]) -> None:
    noticed = set()
    with planted(mutation), sanitised() as found:
        try:
            CASES[case]()
        except (AssertionError, InterpreterError):
            noticed.add(REFERENCE)
    if found.faults:
        noticed.add(SANITISER)
    assert noticed == by, found.faults


def test_a_mutation_of_nothing_is_an_error() -> None:
    with pytest.raises(AssertionError, match="nothing to drop"), planted(Mutation(embed._embed, "barrier", "tl.debug")):
        pass


def test_a_mutation_is_taken_back() -> None:
    kernel: Any = filters._gather
    before = kernel.rewrite()
    with planted(Mutation(kernel, "barrier", "tl.debug_barrier")):
        assert kernel.rewrite() is not before
    assert kernel.rewrite() is before

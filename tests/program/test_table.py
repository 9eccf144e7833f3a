"""An executor has every feature of an operation, or says which it lacks: a forgotten one cannot pass."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.program import table
from specchat.engine.program.lower import lower
from specchat.engine.program.ops import Add, Attend, Head, Mix, Program
from specchat.engine.program.table import OpTable, unsupported
from specchat.engine.recipe import Norm
from specchat.engine.weights.config import parse_config
from tests.engine.tiny import FAMILIES, FAMILY, MORE, UNLIKE, config


def lowered(family: str) -> Program:
    return lower(parse_config(Path(), config(**FAMILIES[family])).recipe)


def reads_all(words: str, op: Add) -> tuple[str, Norm | None, float]:
    return words, post_of(op), op.factor


def post_of(op: Add) -> Norm | None:
    return op.post


def forgets_post(op: Add) -> float:
    return op.factor


def attends(op: Attend) -> str:
    return op.of.sinks


def mixes(op: Mix) -> bool:
    return op.of.sigmoid


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (forgets_post, "Add does not read the feature 'post'"),
        (attends, "Attend does not read the feature 'gated'"),
        (mixes, "Mix does not read the feature 'activation'"),
    ],
)
def test_a_function_that_leaves_out_a_feature_fails_at_import(function: Callable[..., Any], fault: str) -> None:
    with pytest.raises(TypeError, match=f"the GPU kernels: the function of {fault}"):
        OpTable("the GPU kernels", function)


def test_the_function_of_an_operation_s_class_runs_and_may_leave_features_to_others() -> None:
    add = next(op.kind for layer in lowered("granite").layers for op in layer if isinstance(op.kind, Add))
    assert OpTable("the reference", reads_all).run(add, "of") == ("of", None, add.factor)


def test_a_feature_that_an_executor_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.LACKING, "the GPU kernels", {"cap": "capped logits"})
    program = lowered("granite")
    assert unsupported(program, "the GPU kernels") == ""
    capped = replace(program, head=replace(program.head, cap=30.0))
    assert unsupported(capped, "the GPU kernels") == "capped logits: not in the GPU kernels"
    assert unsupported(capped, "the reference") == ""
    assert isinstance(capped.head, Head)


def test_models_are_refused_by_the_executors_that_lack_a_feature() -> None:
    program = lowered("gemma2")
    assert all(unsupported(program, executor) == "" for executor in table.LACKING)
    ((*ops, last), *others) = program.layers
    assert isinstance(last.kind, Add)
    assert last.kind.post
    add = replace(last.kind, post=replace(last.kind.post, centred=True))
    centred = replace(program, layers=((*ops, replace(last, kind=add)), *others))
    told = "norms of values less their mean: not in the compiled pass"
    assert unsupported(centred, "the compiled pass") == told
    assert unsupported(centred, "the reference") == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_every_family_are_connected(family: str) -> None:
    """Each buffer that an operation reads has been written by one before it in the same layer."""
    for layer in lowered(family).layers:
        written: set[str] = set()
        for op in layer:
            reads = {one.name for name in ("source", "gates") if (one := getattr(op.kind, name, None))}
            assert reads <= written, op
            written |= {op.kind.out.name} if hasattr(op.kind, "out") else set()


@pytest.mark.parametrize("family", FAMILIES)
def test_no_executor_lacks_a_feature_of_a_family(family: str) -> None:
    assert [unsupported(lowered(family), executor) for executor in table.LACKING] == [""] * 3


def features(family: str) -> set[tuple[str, str, str]]:
    """Features of a family's operations and of what they do, with what is said of each: present, absent or which."""
    found = set()
    for op in lowered(family).kinds:
        for piece in (op, *table._pieces(op), *table._norms(op)):
            for name, value in table._values(piece):
                known = str(bool(value)) if value is None or isinstance(value, (bool, int, float, str, tuple)) else ""
                found.add((type(op).__name__, name, known or type(value).__name__))
    return found


def test_families_that_slow_tests_leave_to_others_have_no_feature_of_their_own() -> None:
    often, rare = {*FAMILY, *UNLIKE}, {*MORE} - {*UNLIKE}
    shown = set[tuple[str, str, str]]().union(*map(features, often))
    assert {family: more for family in rare if (more := features(family) - shown)} == {}
    assert rare

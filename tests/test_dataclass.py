"""Our `dataclass` against that of the standard library, which declares the same classes."""

import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest

from specchat.dataclass import dataclass


def classes(declare: Callable[..., Any]) -> dict[str, Any]:
    @declare(frozen=True)
    class Point:
        x: int
        y: float = 0.5
        tags: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="s", repr=False)

    @declare(frozen=True)
    class Named(Point):
        name: str = ""

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.upper())

    @declare
    class Loose:
        words: str
        count: int = 0

    @declare(eq=False, kw_only=True)
    class Alone:
        first: int = 1
        second: int

    @declare(frozen=True)
    class Own:
        value: int

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

    class Plain(Named):
        """No dataclass, of one."""

    @declare(frozen=True)
    class Empty:
        pass

    return {kind.__name__: kind for kind in (Point, Named, Loose, Alone, Own, Plain, Empty)}


OURS, TRUTH = classes(dataclass), classes(dataclasses.dataclass)
MADE = (
    ("Point", (1,), {}), ("Point", (1, 2.0), {"tags": ["a"]}), ("Named", (3,), {"name": "ann"}), ("Loose", ("w",), {}),
    ("Alone", (), {"second": 2}), ("Own", (5,), {}), ("Plain", (1,), {"name": "b"}), ("Empty", (), {}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "values", "named"), MADE)
def test_objects_are_those_of_the_standard_library(name: str, values: Any, named: Any) -> None:
    ours, truth = OURS[name](*values, **named), TRUTH[name](*values, **named)
    assert vars(ours) == vars(truth)
    if name != "Alone":  # whose text is its address in neither
        assert repr(ours) == repr(truth)
    assert [part.name for part in fields(ours)] == [part.name for part in fields(truth)]
    again, same = OURS[name](*values, **named), TRUTH[name](*values, **named)
    assert (ours == again) is (truth == same)
    assert ours != truth
    changes: dict[str, Any] = {part.name: 9 for part in fields(ours)[:1]}
    assert (replace(ours, **changes) == ours) is (replace(truth, **changes) == truth)
    assert (type(ours).__hash__ is None) is (type(truth).__hash__ is None)
    if type(truth).__hash__ is not None and name != "Alone":
        assert hash(ours) == hash(truth)
    assert type(ours).__match_args__ == type(truth).__match_args__


@pytest.mark.parametrize("name", ["Point", "Named", "Own"])
def test_a_frozen_one_is_not_changed(name: str) -> None:
    for kinds in (OURS, TRUTH):
        one = kinds[name](1)
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            one.x = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del one.x


@pytest.mark.parametrize(
    ("name", "values"), [("Point", ()), ("Point", (1, 2, 3, 4, 5)), ("Alone", (1,)), ("Loose", ())]
)
def test_wrong_arguments_are_refused_alike(name: str, values: tuple[int, ...]) -> None:
    for kinds in (OURS, TRUTH):
        with pytest.raises(TypeError, match="argument"):
            kinds[name](*values)


def test_one_that_comes_by_pickle_before_any_is_made_here_equals_one_made_here() -> None:
    kind = classes(dataclass)["Loose"]
    come = kind.__new__(kind)  # as pickle makes it
    vars(come).update(words="a", count=1)
    assert come == kind("a", 1)


def test_a_method_is_written_when_it_is_first_called() -> None:
    kinds = classes(dataclass)
    loose = kinds["Loose"]
    before = {name: vars(loose)[name] for name in ("__init__", "__repr__", "__eq__")}
    loose("a")
    assert vars(loose)["__init__"] is not before["__init__"]
    assert (vars(loose)["__repr__"], vars(loose)["__eq__"]) == (before["__repr__"], before["__eq__"])

"""The table of what drafts with which backend."""

import pytest

from measure.backends import BEGIN, END, PAGE, page, table
from specchat.engine.backends import BACKENDS, UNSUPPORTED, declared
from specchat.engine.strategies import HEADS, STRATEGIES


def test_the_page_is_what_the_code_says() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run python -m measure.backends"


def test_every_strategy_and_backend_is_told_and_every_refusal_has_its_reason() -> None:
    rows = {line.split(" | ")[0].strip("| `"): line for line in table().splitlines() if line.startswith("| `")}
    assert set(rows) == set(STRATEGIES)
    for at, backend in enumerate(BACKENDS, 1):
        told = {name: row.strip("| ").split(" | ")[at] for name, row in rows.items()}
        reasons = {name: one.unsupported(declared(True, HEADS, backend)) for name, one in STRATEGIES.items()}
        assert bool(UNSUPPORTED[backend]) == any(reasons.values())
        for name, reason in reasons.items():
            assert told[name] == f"no: {reason}" if reason else {"yes", "with a draft model", "with its heads"}
        assert f"\n- `{backend}`: " in table()
    assert list(UNSUPPORTED) == list(BACKENDS)


def test_a_change_in_the_code_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PAGE.read_text("utf-8")
    monkeypatch.setitem(UNSUPPORTED, "hf", {"drafting": "it was asked not to"})  # type: ignore[misc]
    assert "no: it was asked not to" in page(before)


@pytest.mark.parametrize("text", ["before\n", f"{BEGIN}open", f"{END}"])
def test_a_page_without_its_marks_is_not_written(text: str) -> None:
    with pytest.raises(ValueError, match="lacks its marks"):
        page(text)

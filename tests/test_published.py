"""The cost model against what others have published."""

import pytest

from measure.published import MAX_ERROR, Table, tables


def test_speed_ups_are_predicted() -> None:
    """Within 15 %, but for the rows that the data name, with what is known of them."""
    rows = [row for table in tables() for row in table.rows]
    predicted = [row for row in rows if row.error is not None]
    assert len(predicted) >= 50
    far = {(row.what, row.outside) for row in predicted if abs(row.error or 0.0) > MAX_ERROR}
    assert all(reason for _, reason in far)
    assert len(far) == sum(bool(row.outside) for row in rows) <= 0.05 * len(predicted)
    # What copies needs no row to calibrate costs.
    assert sum(all(row.error is not None for row in table.rows) for table in tables()) >= 3


def named(name: str) -> Table:
    return next(table for table in tables() if table.name == name)


@pytest.mark.parametrize("name", ["vLLM, H100, Llama-3.1-8B, EAGLE", "vLLM, H100, Llama-3.1-8B, EAGLE-3"])
def test_the_best_published_draft_length_is_predicted(name: str) -> None:
    rows = [row for row in named(name).rows if row.predicted is not None]
    assert max(rows, key=lambda row: row.predicted or 0.0) is max(rows, key=lambda row: row.published)


def test_no_row_is_predicted_from_itself() -> None:
    assert [row.what for row in named("AngelSlim, Qwen3-8B, EAGLE-3").rows if row.predicted is None] == ["MT-Bench"]

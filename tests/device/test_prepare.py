"""After the preparation of a pair no reply launches what was not launched before."""

from collections.abc import Callable, Hashable

import pytest

from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.verify import BUCKETS
from specchat.engine.runners.runner import Runner
from tests.device.test_decoding import SAMPLINGS, write


@pytest.mark.parametrize("name", ["runner", "deep"])
def test_replies_capture_nothing_more(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair: Runner = request.getfixturevalue(name)
    pair.target.keep(0)
    keys: set[Hashable] = set()
    run = Graphs.run

    def watched(graphs: Graphs, key: Hashable, body: Callable[[], None]) -> None:
        keys.add(key)
        run(graphs, key, body)

    if name == "deep":  # the interpreter is slow, and the other pair shows that these are captured
        for kind, buckets in BUCKETS.items():
            keys |= {key for rows in buckets for key in (("verify", rows, kind == "tree"), ("judge", rows, kind))}
        monkeypatch.setattr(DeviceExecutor, "capture_verify", lambda _: None)
    monkeypatch.setattr(Graphs, "run", watched)
    parts: list[str] = []
    pair.prepare(parts.append)
    assert pair.target.tokens == []
    assert {f"drafting by {strategy}" for strategy in pair.drafters} <= set(parts)
    prepared = set(keys)
    for strategy, length in (
        ("plain", 0),
        ("lookup", 3),
        ("draft", 4),
        ("draft-tree", 3),
        ("swift", 2),
        ("early-exit", 2),
    ):
        if strategy in pair.drafters:
            write(pair, strategy, length, SAMPLINGS["sampled"], tokens=3)
    if name == "runner":
        write(pair, "draft", 4, SAMPLINGS["sampled"], tokens=2, acceptance="block")
    assert keys == prepared

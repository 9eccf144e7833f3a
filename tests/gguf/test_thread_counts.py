"""How many threads a GGUF model gets, chosen by the times of passes."""

from collections.abc import Callable, Sequence

import pytest

from specchat.engine.gguf import model
from specchat.engine.gguf.model import GgufModel
from specchat.engine.loading.gguf import counts


class Timed(GgufModel):
    """A model whose passes take what `seconds` says of their rows and threads, on a clock of its own."""

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        self.context, self.now, self._seconds = 64, 0.0, seconds
        self.used: list[int] = []

    def _use(self, threads: int) -> None:
        self.threads = threads
        self.used.append(threads)

    def forward(self, tokens: Sequence[int], *_: object) -> None:  # type: ignore[override]
        self.now += self._seconds(len(tokens), self.threads)


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        (lambda rows, threads: rows / threads, 2),
        (lambda rows, threads: rows / (1 + 0.1 * (threads > 1)), 1),  # a small gain is not worth a core
        (lambda rows, threads: rows * threads, 1),
    ],
)
def test_two_cores_are_used_where_they_are_clearly_faster(
    seconds: Callable[[int, int], float], chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Timed(seconds)
    monkeypatch.setattr(model, "perf_counter", lambda: made.now)
    made.choose_threads(counts(2))
    assert made.threads == chosen
    assert made.used[:4] == [1, 2, 1, 2], "in turn, so that whatever else runs meets both"


def test_of_many_cores_one_is_left() -> None:
    assert [counts(cores) for cores in (1, 2, 3, 4, 8)] == [[1], [1, 2], [1, 3], [1, 2, 4], [1, 4, 7]]

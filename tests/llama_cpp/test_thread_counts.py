"""How many threads a GGUF model gets, chosen by the times of passes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from specchat.engine.llama_cpp import context, model
from specchat.engine.llama_cpp.context import GgufSettings
from specchat.engine.llama_cpp.file import GgufFile
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.loading.gguf import counts


class Timed(GgufModel):
    """A model whose passes take what `seconds` says of their rows and threads, on a clock of its own."""

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        self.context, self.now, self._seconds = 64, 0.0, seconds
        self._settings = GgufSettings(64, None, "f32", flash_attention=True)
        self.used: list[int] = []
        self._cache = self  # type: ignore[assignment]

    def use(self, threads: int) -> None:
        self.used.append(threads)

    @property
    def threads(self) -> int:
        return self.used[-1]

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


@pytest.mark.needs_llama
def test_the_number_is_left_when_the_machine_becomes_busy_and_the_text_stays(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = GgufModel(GgufFile(files[0], 0, lambda _: None), GgufSettings(256, None, "f32", False))
    clock, busy = [0.0], [1.0]
    decode = made.file.api.llama_decode

    def timed(*arguments: object) -> int:
        clock[0] += busy[0] if made.threads == 2 else 1.8
        return int(decode(*arguments))

    monkeypatch.setattr(made.file.api, "llama_decode", timed)
    for module in (context, model):
        monkeypatch.setattr(module, "perf_counter", lambda: clock[0])
    made.choose_threads([1, 2])
    assert made.threads == 2
    text = [7 * at % 256 for at in range(120)]
    made.write(text[:1], 0)
    expected, counts_used = [], set()
    for at, token in enumerate(text[1:60], 1):
        expected.append(made.forward([token], at)[0].clone())
    busy[0] = 40.0
    for at, token in enumerate(text[60:], 60):
        expected.append(made.forward([token], at)[0].clone())
        counts_used.add(made.threads)
    assert made.threads == 1
    assert counts_used == {1, 2}
    other = GgufModel(GgufFile(files[0], 0, lambda _: None), GgufSettings(256, 1, "f32", False))
    other.write(text[:1], 0)
    for at, token in enumerate(text[1:], 1):
        assert torch.equal(other.forward([token], at)[0], expected[at - 1]), at

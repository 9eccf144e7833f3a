"""The order in which contenders take turns, and what happens to one that fails."""

from dataclasses import dataclass, field

import pytest

from specchat.bench.contender import BenchPrompt, Contender, Run
from specchat.bench.interleaved import BenchProgress, measure
from tests.bench.samples import prompt, run


@dataclass
class Scripted:
    name: str
    calls: list[str]
    rival: str = ""
    fails_at: int = -1
    note: str = ""
    runs: int = field(default=0)

    def warm_up(self, prompt: BenchPrompt) -> None:
        self.calls.append(f"warm {self.name}")
        if self.fails_at == 0:
            raise RuntimeError("no such kernel")

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        self.runs += 1
        if self.runs == self.fails_at:
            raise RuntimeError("out of luck")
        self.calls.append(f"{self.name} {prompt.id}")
        return run(10.0)

    def close(self) -> None:
        pass


def test_contenders_take_turns_in_another_order_for_each_reply() -> None:
    calls: list[str] = []
    contenders = [Scripted(name, calls) for name in "xyz"]
    told: list[BenchProgress] = []
    prompts = [prompt(name) for name in "abcdefgh"]
    samples = list(measure(contenders, prompts, 5, 8, told.append, lambda *_: None))
    assert calls[:3] == ["warm x", "warm y", "warm z"]
    rounds = [calls[at : at + 3] for at in range(3, len(calls), 3)]
    assert [sorted(one) for one in rounds] == [
        [f"{name} {of.id}" for name in "xyz"] for of in prompts for _ in range(5)
    ]
    orders = [tuple(call[0] for call in one) for one in rounds]
    assert orders[0] == ("x", "y", "z")
    assert len(set(orders)) == 6, "nobody always follows the same one"
    assert [(s.contender, s.prompt.id, s.repeat) for s in samples[:6]] == [
        (name, "a", repeat) for repeat in (0, 1) for name in orders[repeat]
    ]
    fractions = [at.fraction for at in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] < 1.0


def test_a_prompt_is_repeated_until_its_replies_are_enough() -> None:
    contenders = [Scripted(name, []) for name in "xy"]
    told: list[BenchProgress] = []
    made = measure(
        contenders, [prompt("a"), prompt("b")], 9, 8, told.append, lambda *_: None, lambda some: len(some) >= 6
    )
    assert [(s.contender, s.prompt.id, s.repeat) for s in made if s.contender == "x"] == [
        ("x", of, repeat) for of in "ab" for repeat in range(3)
    ]
    assert [at.fraction for at in told] == sorted(at.fraction for at in told)


@pytest.mark.parametrize("fails_at", [0, 2])
def test_another_program_that_fails_is_left_out(fails_at: int) -> None:
    calls: list[str] = []
    contenders = [Scripted("ours", calls), Scripted("theirs", calls, rival="plain", fails_at=fails_at)]
    failed: list[tuple[Contender, Exception]] = []
    samples = list(
        measure(contenders, [prompt("a"), prompt("b"), prompt("c")], 1, 8, lambda _: None, lambda *f: failed.append(f))
    )
    assert [s.prompt.id for s in samples if s.contender == "ours"] == ["a", "b", "c"]
    assert sum(s.contender == "theirs" for s in samples) == (0 if fails_at == 0 else 1)
    assert [contender.name for contender, _ in failed] == ["theirs"]


def test_an_error_of_ours_is_not_hidden() -> None:
    contenders = [Scripted("ours", [], fails_at=1)]
    with pytest.raises(RuntimeError, match="out of luck"):
        list(measure(contenders, [prompt()], 1, 8, lambda _: None, lambda *_: None))

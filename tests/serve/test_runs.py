"""The text of steps as runs of reasoning and answer."""

from specchat.engine.protocol.events import Piece, Step
from specchat.serve.runs import Runs


def step(*texts: tuple[str, bool]) -> Step:
    pieces = tuple(Piece(text, "target", reasoning) for text, reasoning in texts)
    return Step(1, pieces, 0, 0, 0, 1, 0.0, 0.0, 0.0, 1, "plain")


def test_an_answer_begins_without_the_empty_lines_after_reasoning() -> None:
    runs = Runs()
    assert runs.of(step(("\nhm", True), ("\n", True), ("\n", False))) == [(True, "\nhm\n")]
    assert runs.of(step(("so", True), ("\nYes", False), ("\n", False))) == [(True, "so"), (False, "Yes\n")]
    assert runs.of(step(("\nNo", False))) == [(False, "\nNo")]


def test_an_answer_alone_has_all_its_lines() -> None:
    assert Runs().of(step(("\n\nYes", False))) == [(False, "\n\nYes")]

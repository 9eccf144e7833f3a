"""Recorded replies whose costs are known."""

from collections.abc import Sequence
from dataclasses import replace

from specchat.chat.turn import Reply
from specchat.engine.protocol.events import Finished, Piece, Started, Step
from specchat.engine.protocol.options import Sampling, Speculation
from tests.fake_steps import compared, stats, steps


def finished(accepted: tuple[int, ...], strategy: str = "draft", plain: float = 100.0, text: str = "") -> Reply:
    """A reply as the scripted engine makes it."""
    return reply_of(steps(text or "word " * 200, accepted, strategy, used=10), Speculation.of(strategy), plain)


def reply_of(made: Sequence[Step], speculation: Speculation, plain: float = 100.0, *, name: str = "demo") -> Reply:
    """A reply that has ended, made of these steps."""
    reply = Reply(1, name, Sampling(seed=42), speculation)
    reply.started(Started(1, 10, 0, 42, speculation))
    for step in compared(made, plain):
        reply.step(step)
    text = "".join(piece.text for step in made for piece in step.pieces)
    reply.finished(Finished(1, "stop", text, (), stats(made, 10, plain)))
    return reply


def step_of(
    accepted: int,
    drafted: int,
    *,
    draft_ms: float = 2.0,
    check_ms: tuple[float, float] = (10.0, 1.0),
    other_ms: float = 0.5,
    strategy: str = "draft",
) -> Step:
    """A step that costs `draft_ms` a drafted token and `check_ms` as (one row, each row more)."""
    first, more = check_ms
    source = strategy if not drafted else "bonus" if accepted == drafted else "target"
    return Step(
        id=1,
        pieces=(*(Piece(" a", strategy) for _ in range(accepted)), Piece(" b", source)),
        drafted=drafted,
        tested=min(accepted + 1, drafted),
        accepted=accepted,
        emitted=accepted + 1,
        draft_ms=draft_ms * drafted,
        verify_ms=first + more * drafted,
        other_ms=other_ms,
        context_used=0,
        strategy=strategy,
    )


def times_faster(step: Step, factor: float) -> Step:
    """The same step in less time."""
    return replace(
        step, draft_ms=step.draft_ms / factor, verify_ms=step.verify_ms / factor, other_ms=step.other_ms / factor
    )

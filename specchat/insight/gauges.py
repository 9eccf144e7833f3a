"""The figures of the engine panel, computed from a reply's steps and the loaded pair."""

from specchat import figures
from specchat.chat.lately import speedup_lately
from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.strategies import SERVER
from specchat.insight.diagnosis import NO_DIAGNOSIS, Diagnosis
from specchat.insight.gpu_use import NO_USE, GpuUse

RECENT = 64
"""Steps kept for the sparkline."""


@dataclass(frozen=True)
class AcceptanceGauges:
    """Acceptance of drafts.

    Attributes:
        recent: accepted tokens of the last steps.
        histogram: [j] steps with a draft that accepted exactly j tokens.
        longest: the longest draft that can be accepted, for the scale of the bars.
    """

    length: float | None = None
    rate: float | None = None
    recent: tuple[int, ...] = ()
    histogram: tuple[int, ...] = ()
    longest: int = 0


@dataclass(frozen=True)
class SpeedGauges:
    """Speed, and the speed-up over plain decoding.

    Attributes:
        interval: 95 % bounds of the speed-up.
        lately: True if the speed-up counts the replies before, too.
        measuring: True while a reply is written whose speed-up will be shown, and too little is known yet.
    """

    tokens_per_second: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    lately: bool = False
    measuring: bool = False

    @property
    def slower(self) -> bool:
        """True if plain decoding would have been faster."""
        return self.speedup is not None and self.speedup <= 1 - figures.EVEN


@dataclass(frozen=True)
class TimeGauges:
    """Milliseconds of all steps; `waited` for a processor that other programs had."""

    draft: float = 0.0
    verify: float = 0.0
    other: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True)
class Gauges:
    """Figures of one reply so far. None where there is nothing to show yet; times in milliseconds, memory in bytes."""

    acceptance: AcceptanceGauges = AcceptanceGauges()
    speed: SpeedGauges = SpeedGauges()
    times: TimeGauges = TimeGauges()
    first_token_ms: float | None = None
    context_used: int = 0
    context: int = 0
    memory: int = 0
    diagnosis: Diagnosis = NO_DIAGNOSIS
    saved_ms: float | None = None
    """Saved since the app was started; negative where drafting cost time."""
    gpu: GpuUse = NO_USE


def gauges(
    reply: Reply | None,
    info: PairInfo | None,
    diagnosis: Diagnosis = NO_DIAGNOSIS,
    saved_ms: float | None = None,
    gpu: GpuUse = NO_USE,
) -> Gauges:
    """The figures of `reply`, or of an idle engine when there is none.

    While it runs they count from the latest change of speculation, so that the change can be judged.
    """
    context = info.context if info else 0
    used_memory = info.load.memory if info else 0
    if reply is None:
        return Gauges(context=context, memory=used_memory, diagnosis=diagnosis, saved_ms=saved_ms, gpu=gpu)
    stats = reply.end.stats
    tally = reply.stretch if stats is None else reply.tally
    speed = stats.tokens_per_second if stats else tally.tokens_per_second
    known = tally.compared.speedup if reply.record.changes and stats is None else speedup_lately(reply)
    drafting = bool(tally.speculative)
    here = reply.record.speculation.strategy != SERVER
    counted = stats if not here and stats is not None and stats.num_spec_steps else None  # by the server, at the end
    rate, length = tally.acceptance_rate, tally.acceptance_length
    if counted is not None:
        rate, length = counted.draft_acceptance_rate, counted.mean_acceptance_length
    return Gauges(
        AcceptanceGauges(
            length=length if drafting else None,
            rate=rate,
            recent=tuple(step.accepted for step in reply.steps[-RECENT:]),
            histogram=tuple(tally.histogram) if counted is None else counted.acceptance_histogram,
            longest=max(len(tally.histogram) - 1, reply.speculation.draft_length),
        ),
        SpeedGauges(
            tokens_per_second=speed or None,
            speedup=known.times if known is not None and drafting else None,
            interval=(known.low, known.high) if known is not None and drafting else None,
            lately=known is not None and known not in (reply.speedup, reply.tally.compared.rough),
            measuring=known is None and drafting and bool(tally.compared.steps) and not reply.ended,
        ),
        TimeGauges(*(tally.draft_ms, tally.verify_ms, tally.other_ms) if here else (0.0, 0.0, 0.0), tally.waited_ms),
        first_token_ms=_first_token_ms(reply),
        context_used=reply.tally.context_used or reply.prompt.tokens,
        context=context,
        memory=used_memory,
        diagnosis=diagnosis,
        saved_ms=saved_ms,
        gpu=gpu,
    )


def _first_token_ms(reply: Reply) -> float | None:
    """Time to the first token; while the reply is written, of reading the prompt and of the first step."""
    if not reply.tally.tokens:
        return None
    if reply.end.stats is not None:
        return reply.end.stats.ttft_ms
    return reply.prompt.ms + reply.steps[0].milliseconds

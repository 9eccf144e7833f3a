"""Measures steps at published shapes with random weights, and projects speeds at an assumed acceptance.

The cost of a step does not depend on the values of the weights; the number of accepted tokens does. So costs are
measured and acceptance is assumed: each draft token is accepted with the same probability, as in Leviathan et al.
2023, and a step of n draft tokens yields (1 - a^(n + 1)) / (1 - a) tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from specchat.bench.cost_model import even_survival, expected_tokens, speed_up
from specchat.bench.published import Shapes
from specchat.bench.summary import Spread
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.memory.plan import GPU_RUNTIME
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.runner import Runner

LENGTHS = (0, 1, 3, 5, 7, 15)
"""Draft lengths: with the pending token they fill the widths of a GPU's verify passes. The default is among them."""
PROMPT_TOKENS = 256
"""Tokens in the caches: a short chat."""
WARM_UP = 2
STEPS = 4
ROUNDS = 6
BUDGET_S = 90.0
"""Seconds after which no further round begins."""
CONTEXT = PROMPT_TOKENS + (WARM_UP + STEPS + 1) * (max(LENGTHS) + 1)
SCHEMA = 1
COUNTED = f"{GPU_RUNTIME >> 20} MiB"


@dataclass(frozen=True)
class StepCost:
    """Measured milliseconds of a step that drafts `length` tokens; `other` is the host's share."""

    length: int
    draft_ms: Spread
    verify_ms: Spread
    other_ms: Spread
    step_ms: Spread

    @classmethod
    def of(cls, length: int, steps: "Sequence[TimedStep]") -> "StepCost | None":
        """The cost of such steps; None if there are none."""
        spreads = (
            Spread.of([s.draft_ms for _, s in steps]),
            Spread.of([s.verify_ms for _, s in steps]),
            Spread.of([max(0.0, ms - s.draft_ms - s.verify_ms) for ms, s in steps]),
            Spread.of([ms for ms, _ in steps]),
        )
        draft, verify, other, whole = spreads
        if draft is None or verify is None or other is None or whole is None:
            return None
        return cls(length, draft, verify, other, whole)


TimedStep = tuple[float, StepOutcome]
"""Milliseconds and outcome of a step."""


@dataclass(frozen=True)
class ProjectedYield:
    """Projected yield of a draft length at the assumed acceptance."""

    length: int
    assumed_tokens_a_step: float
    projected_tokens_per_second: float
    projected_times_plain: float


@dataclass(frozen=True)
class Synthetic:
    """Measured costs, the assumed acceptance, and the projections from both."""

    target: str
    draft: str
    cut: bool
    machine: str
    quant: Quant | None
    device: str
    prompt: int
    runtime: int | None
    """Measured bytes of CUDA's modules and graphs, and of what other programs took meanwhile; None on a processor."""
    costs: tuple[StepCost, ...]
    assumed_acceptance: float
    projections: tuple[ProjectedYield, ...]

    @property
    def statement(self) -> str:
        """The disclaimer that accompanies every figure."""
        words = (
            "SYNTHETIC: random weights at published shapes. That a draft token is accepted with probability "
            f"{self.assumed_acceptance:.2f} is ASSUMED, not measured; speeds that follow from it are projections."
        )
        return words + (" Layers are left out: no figure is the whole model's." if self.cut else "")


def project(costs: Iterable[StepCost], acceptance: float) -> list[ProjectedYield]:
    """Project each draft length; plain decoding, length 0, must be among them."""
    steps = list(costs)
    plain = next(cost.step_ms.median for cost in steps if cost.length == 0)
    projected = []
    for cost in steps:
        tokens = expected_tokens(even_survival(acceptance, cost.length))
        speed = 1e3 * tokens / cost.step_ms.median
        projected.append(ProjectedYield(cost.length, tokens, speed, speed_up(tokens, cost.step_ms.median / plain)))
    return projected


def step_costs(
    runner: Runner,
    notify: Callable[[float], None],
    wanted: Callable[[], bool],
    clock: Callable[[], float] = perf_counter,
) -> list[StepCost]:
    """Measure steps of every draft length of LENGTHS as `timed_in_turn`."""
    tried = [(runner.drafters["draft" if length else "plain"], length) for length in LENGTHS]
    timed = timed_in_turn(runner, tried, notify, wanted, clock)
    costs = (StepCost.of(length, steps) for length, steps in zip(LENGTHS, timed, strict=True))
    return [cost for cost in costs if cost is not None]


def timed_in_turn(
    runner: Runner,
    tried: Sequence[tuple[Drafter, int]],
    notify: Callable[[float], None],
    wanted: Callable[[], bool],
    clock: Callable[[], float] = perf_counter,
    tokens: int | None = None,
) -> list[list[TimedStep]]:
    """Time steps of drafters and draft lengths in turn, after `tokens` or PROMPT_TOKENS. Leaves the cache empty.

    Ends early once it is no longer `wanted`; what was not measured by then has no steps.
    """
    # Random weights are never confident: the length policy would end every draft at once.
    runner.executor.policies.off = True
    prompt = [0] * (tokens or PROMPT_TOKENS)
    timed: list[list[TimedStep]] = [[] for _ in tried]
    runner.target.begin(prompt)
    begun = clock()
    for turn in range(ROUNDS):
        if turn and clock() - begun > BUDGET_S:
            break
        for place, (drafter, length) in enumerate(tried):
            if not wanted():
                break
            notify((turn * len(tried) + place) / (ROUNDS * len(tried)))
            timed[place] += _steps(runner, prompt, drafter, length, clock)
    runner.target.keep(0)
    return timed


def _steps(
    runner: Runner, prompt: list[int], drafter: Drafter, length: int, clock: Callable[[], float]
) -> list[TimedStep]:
    """STEPS steps after the warm-up; the cache keeps the prompt."""
    drafter.begin(prompt)
    reply = runner.reply(Sampling(), list(prompt), ())
    timed: list[TimedStep] = []
    try:
        for i in range(WARM_UP + STEPS):
            start = clock()
            outcome = reply.step(drafter, length, "coupled")
            if i >= WARM_UP:
                timed.append((1e3 * (clock() - start), outcome))
    finally:
        reply.close()
        runner.target.keep(len(prompt) - 1)
    return timed


def synthetic(
    shapes: Shapes,
    published: Shapes,
    quant: Quant | None,
    runner: Runner,
    costs: list[StepCost],
    acceptance: float,
    machine: str,
    runtime: int | None = None,
) -> Synthetic:
    """The report on `shapes`, cut from `published`, measured on `machine`; `runtime` as in `Synthetic`."""

    def describe(name: str, layers: int, of: int) -> str:
        return f"{name}, {layers} of {of} layers" if layers < of else f"{name}, {layers} layers"

    return Synthetic(
        target=describe(shapes.target_name, shapes.target.layers, published.target.layers),
        draft=describe(shapes.draft_name, shapes.draft.layers, published.draft.layers),
        cut=shapes.target.layers < published.target.layers,
        machine=machine,
        quant=quant,
        device=runner.device,
        prompt=PROMPT_TOKENS,
        runtime=runtime,
        costs=tuple(costs),
        assumed_acceptance=acceptance,
        projections=tuple(project(costs, acceptance)) if any(c.length == 0 for c in costs) else (),
    )


def text(report: Synthetic) -> str:
    """The report as a table."""
    names = ("drafted", "draft ms", "verify ms", "other ms", "step ms", "quartiles")
    assumed = ("assumed tokens/step", "projected tok/s", "projected x plain")
    lines = [
        report.statement,
        report.machine,
        f"{report.target} ({report.quant or 'unquantised'}), draft {report.draft}; {report.device}; "
        f"after {report.prompt} tokens",
        *([] if report.runtime is None else [f"modules and graphs: {report.runtime >> 20} MiB, {COUNTED} are planned"]),
        "",
        f"{names[0]:>7}{names[1]:>10}{names[2]:>11}{names[3]:>10}{names[4]:>9}{names[5]:>18}"
        f"{assumed[0]:>21}{assumed[1]:>17}{assumed[2]:>19}",
    ]
    projected = {p.length: p for p in report.projections}
    for c in report.costs:
        quartiles = f"{c.step_ms.low:.2f}-{c.step_ms.high:.2f}"
        line = (
            f"{c.length:>7}{c.draft_ms.median:>10.2f}{c.verify_ms.median:>11.2f}{c.other_ms.median:>10.2f}"
            f"{c.step_ms.median:>9.2f}{quartiles:>18}"
        )
        if (p := projected.get(c.length)) is not None:
            line += f"{p.assumed_tokens_a_step:>21.2f}{p.projected_tokens_per_second:>17.1f}"
            line += f"{p.projected_times_plain:>19.2f}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def as_json(report: Synthetic) -> dict[str, Any]:
    """All figures; names with "assumed" or "projected" rest on the assumption."""
    return {"schema": SCHEMA, "synthetic": True, "statement": report.statement, **asdict(report)}

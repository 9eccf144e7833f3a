"""Quick measurements of step costs at load."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median
from time import perf_counter

from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.decoding.draft import Copier, Copy, Drafter
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.protocol.events import Event, Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Cancel, Generate
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH

PROMPT_TOKENS, SHORT_TOKENS = 64, 8
"""Tokens in the cache while measuring: of a short chat, and of a model that is slow to read that."""
STEPS = 16
WARM_UP = 2
"""First steps, which are not timed."""
BUDGET_S = 1.0
"""Seconds after which a slow model has fewer steps."""
FEW_STEPS = 6
"""Plain steps within `BUDGET_S` below which a reply tells `auto` nothing."""
DRAFT_LENGTHS, DRAFTS, MIN_DRAFTS = (1, 4), 5, 3
"""Draft lengths that are measured, drafts of each by a strategy, and drafts of a length that make a measurement
if there were as many: a single one may have been delayed."""
VERIFIED_LENGTHS = (0, 4, MAX_DRAFT_LENGTH, 8, 2, 1)
"""Draft lengths whose verification is measured: what a slow model has no time for is between others."""
ROUNDS = 7
"""Timings of each length, in turn, so that a busy machine slows all of them."""
REPLY = Generate(
    0,
    (Message("user", "Tell me a story about a fox and a lamp."),),
    sampling=Sampling(seed=0, temperature=0.0),
    limits=Limits(max_tokens=48),
    speculation=Speculation.of("plain"),
    cold=True,
)
"""Request of the plain reply that is measured."""
REPLIES = 3
"""Plain replies, of greedy and of drawn tokens each, and of `auto` after each; a slow model writes one."""
DRAWN = 0.7
"""The temperature at which plain speed is measured where tokens are drawn."""
REPLY_TOKENS = 16
"""Shorter plain replies give no reliable speed."""


class Unlike(Copier):
    """Drafts as many unlike tokens as it may: rows of one token would have the same experts, and share their cost."""

    name = "unlike"

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        return Copy([abs(token_ids[-1] - 1 - i) for i in range(limit)], strategy=self.name)


class Deadline:
    """Stops a reply once `BUDGET_S` is over."""

    def __init__(self) -> None:
        self._end = perf_counter() + BUDGET_S

    def poll(self) -> Cancel | None:
        return Cancel(REPLY.id) if perf_counter() > self._end else None


def has_time(per_second: float, steps: int) -> bool:
    """True if so many plain steps, of which a second has `per_second`, take no longer than a measurement may."""
    return steps <= per_second * BUDGET_S


def reply_plainly(generate: Callable[[Generate, Deadline], Iterator[Event]], temperature: float = 0.0) -> bool:
    """Let plain decoding write a reply, text and events included, whose speed the session stores.

    Returns False if it is too short.

    Raises:
        EngineError: `generate` cannot answer the prompt, for example because the context is too small.
    """
    request = replace(REPLY, sampling=replace(REPLY.sampling, temperature=temperature))
    ended = [event.stats for event in generate(request, Deadline()) if isinstance(event, Finished)]
    return ended[0].completion_tokens >= REPLY_TOKENS


def in_turn(
    generate: Callable[[Generate, Deadline], Iterator[Event]], load: Callable[[], float]
) -> list[tuple[float, float]]:
    """Let plain decoding and `auto` write replies in turn; return `load` after each, empty if they are too short.

    Raises:
        EngineError: as `reply_plainly`.
    """
    begun, loads = perf_counter(), list[tuple[float, float]]()
    for number in range(2 * REPLIES):
        late = perf_counter() - begun > BUDGET_S
        if (number > 1 and late) or not reply_plainly(generate, DRAWN * (number % 2)) or (loads and late):
            break
        plain = load()
        rehearse(generate, None)
        loads.append((plain, load()))
    return loads


def rehearse(generate: Callable[[Generate, Deadline], Iterator[Event]], auto: Drafter | None) -> None:
    """Let `auto` write a reply, which measures its strategies' step costs and acceptance.

    Raises:
        EngineError: as `reply_plainly`.
    """
    trying = auto if isinstance(auto, AutoDrafter) else None
    if trying is not None:
        trying.tries = True
    try:
        for _event in generate(replace(REPLY, speculation=Speculation.of("auto")), Deadline()):
            pass
    finally:
        if trying is not None:
            trying.tries = False


def read_prompt(runner: Runner) -> list[int]:
    """Read the prompt that all measurements share, so that the cache holds it."""
    room = max(STEPS + WARM_UP + 1, (DRAFTS + WARM_UP) * (max(DRAFT_LENGTHS) + 1) + 1, MAX_DRAFT_LENGTH + 2)
    prompt = [0] * max(1, min(PROMPT_TOKENS, runner.context - room))
    short = prompt[:SHORT_TOKENS]
    begun = perf_counter()
    runner.target.begin(short)
    if 2 * (perf_counter() - begun) * len(prompt) > BUDGET_S * len(short):
        return short
    runner.target.begin(prompt)
    return prompt


def plain_speed(runner: Runner, prompt: list[int]) -> float:
    """Tokens per second of plain greedy decoding by the median step, without text; 0 if the context is too small."""
    timed = [ms for ms, _ in _steps(runner, prompt, "plain", 0, STEPS)]
    return 1e3 / median(timed) if timed else 0.0


def draft_costs(runner: Runner, prompt: list[int]) -> dict[str, dict[int, float]]:
    """Milliseconds of drafts by strategy and length, for the draft model and each head: the fastest step of each."""
    costs: dict[str, dict[int, float]] = {}
    policies = runner.executor.policies
    policies.off = True
    try:
        for name in runner.drafters:
            one = STRATEGIES[name]
            # A tree must be tried before `auto` takes it, and what a model drafts of is up to its chain.
            for length in DRAFT_LENGTHS if one.group in ("model", "heads") and not one.tree_of else ():
                steps = [outcome for _, outcome in _steps(runner, prompt, name, length, DRAFTS) if outcome.drafted]
                for drafted, ms in _by_length(steps).items():
                    if len(ms) >= min(MIN_DRAFTS, len(steps)):
                        costs.setdefault(name, {})[drafted] = min(ms)
    finally:
        policies.off = False
    return costs


def _by_length(steps: Iterable[StepOutcome]) -> dict[int, list[float]]:
    """Milliseconds of drafts by length."""
    timed: dict[int, list[float]] = {}
    for outcome in steps:
        timed.setdefault(outcome.drafted, []).append(outcome.draft_ms)
    return timed


def check_costs(runner: Runner, prompt: list[int]) -> dict[int, float]:
    """Milliseconds of verifying, by rows: the fastest of ROUNDS, which other programs delayed least.

    A slow model has fewer rounds, and fewer lengths.
    """
    if not any(STRATEGIES[name].group == "copied" for name in runner.drafters):
        return {}  # no drafts are supported
    warm, timed = set[int](), dict[int, list[float]]()
    begun = perf_counter()
    first = chain.from_iterable((length, length) for length in VERIFIED_LENGTHS)
    for length in chain(first, VERIFIED_LENGTHS * (ROUNDS - 1)):
        if perf_counter() - begun > BUDGET_S:
            break
        outcome = _copied(runner, prompt, length)
        rows = 1 + outcome.drafted
        if rows in warm:
            timed.setdefault(rows, []).append(outcome.verify_ms)
        warm.add(rows)
    return {rows: min(ms) for rows, ms in timed.items()}


def _copied(runner: Runner, prompt: list[int], length: int) -> StepOutcome:
    """A step after `prompt` that drafts `length` unlike tokens."""
    runner.target.begin(prompt)
    reply = runner.reply(Sampling(), prompt, ())
    try:
        return reply.step(Unlike(), length, "coupled")
    finally:
        reply.close()


def _steps(runner: Runner, prompt: list[int], strategy: str, length: int, most: int) -> list[tuple[float, StepOutcome]]:
    """Milliseconds and outcome of up to `most` steps after the warm-up."""
    runner.target.begin(prompt)
    drafter = runner.drafters[strategy]
    drafter.begin(prompt)
    reply = runner.reply(Sampling(), prompt, ())
    timed: list[tuple[float, StepOutcome]] = []
    begun = perf_counter()
    try:
        for i in range(most + WARM_UP):
            if reply.room <= length:
                break
            start = perf_counter()
            outcome = reply.step(drafter, length, "coupled")
            if i >= WARM_UP:
                timed.append((1e3 * (perf_counter() - start), outcome))
            if timed and perf_counter() - begun > BUDGET_S:
                break
    finally:
        reply.close()
    return timed

"""Quick measurements at load: what a step costs here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter

from specchat.engine.api import Cancel, Event, Finished, Generate
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.decoding.draft import Copier, Copy, Drafter
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.options import Limits, Message, Sampling, Speculation
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH

PROMPT = 64
"""Tokens in the cache while measuring: a short chat."""
STEPS = 16
WARM_UP = 2
"""First steps that do not count."""
BUDGET_S = 1.0
"""A slow model is measured on fewer steps."""
DRAFTED, DRAFTS, ALIKE = (1, 4), 5, 3
"""Lengths of the drafts that are measured, how many of each by a family, and how many must have come out alike, unless
there were fewer: what was measured once may have been delayed."""
CHECKED = (0, 1, 2, 4, 8, MAX_DRAFT_LENGTH)
"""Tokens of the drafts whose checks are measured."""
ROUNDS = 7
"""Times that each is, in turn, so that whatever slows the machine for a while slows all of them."""
REPLY = Generate(
    0,
    (Message("user", "Tell me a story about a fox and a lamp."),),
    sampling=Sampling(seed=0, temperature=0.0),
    limits=Limits(max_tokens=48),
    speculation=Speculation.of("plain"),
    cold=True,
)
"""The plain reply that is measured."""
REPLIES = 3
"""A slow model writes one."""
REPLY_TOKENS = 16
"""Shorter plain replies say little about speed."""


class Repeating(Copier):
    """Drafts the last token over and over, as many times as it may."""

    name = "repeating"

    def propose(self, text: Sequence[int], limit: int) -> Copy:
        return Copy([text[-1]] * limit, strategy=self.name)


class Deadline:
    """Stops a reply once `BUDGET_S` is over."""

    def __init__(self) -> None:
        self._end = perf_counter() + BUDGET_S

    def poll(self) -> Cancel | None:
        return Cancel(REPLY.id) if perf_counter() > self._end else None


def reply_plainly(generate: Callable[[Generate, Deadline], Iterator[Event]], temperature: float = 0.0) -> bool:
    """Let plain decoding write up to `REPLIES` replies, text and events included, whose speed the session keeps.

    Whether they are long enough: the first that is not is the last.

    Raises:
        EngineError: `generate` cannot answer the prompt, for example where the context is too small for it.
    """
    request = replace(REPLY, sampling=replace(REPLY.sampling, temperature=temperature))
    begun, replies = perf_counter(), 0
    while replies < REPLIES and perf_counter() - begun < BUDGET_S / REPLIES:
        ended = [event.stats for event in generate(request, Deadline()) if isinstance(event, Finished)]
        if ended[0].completion_tokens < REPLY_TOKENS:
            return False
        replies += 1
    return True


def rehearse(generate: Callable[[Generate, Deadline], Iterator[Event]], auto: Drafter | None) -> None:
    """Let `auto` write a reply: what steps of its kinds cost and its models bring is then known, for it is kept.

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


def plain_speed(runner: Runner) -> float:
    """Tokens per second of plain greedy decoding, by the median step, without text; 0 where the context holds none.
    Leaves the cache empty."""
    timed = [ms for ms, _ in _steps(runner, "plain", 0, STEPS)]
    return 1e3 / median(timed) if timed else 0.0


def draft_costs(runner: Runner) -> dict[str, dict[int, float]]:
    """Milliseconds of drafts of one token and of a few, by the draft model and by each head: the least of the steps, as
    of checks. Leaves the cache empty."""
    costs: dict[str, dict[int, float]] = {}
    policies = runner.executor.policies
    policies.off = True
    try:
        for name in runner.drafters:
            one = STRATEGIES[name]
            # A tree must be tried before `auto` takes it, and what a model drafts of is up to its chain.
            for length in DRAFTED if one.group in ("model", "heads") and not one.tree_of else ():
                steps = [stepped for _, stepped in _steps(runner, name, length, DRAFTS) if stepped.drafted]
                for drafted, ms in _by_length(steps).items():
                    if len(ms) >= min(ALIKE, len(steps)):
                        costs.setdefault(name, {})[drafted] = min(ms)
    finally:
        policies.off = False
    return costs


def _by_length(steps: Iterable[Stepped]) -> dict[int, list[float]]:
    """Milliseconds of drafts by their lengths."""
    timed: dict[int, list[float]] = {}
    for stepped in steps:
        timed.setdefault(stepped.drafted, []).append(stepped.draft_ms)
    return timed


def check_costs(runner: Runner) -> dict[int, float]:
    """Milliseconds of checking so many rows, each the least of ROUNDS, which other programs delayed least; of fewer
    rounds, or of none of the longer ones, where a model is slow. Leaves the cache empty."""
    if not any(STRATEGIES[name].group == "copied" for name in runner.drafters):
        return {}  # nothing can be drafted
    prompt = [0] * max(1, min(PROMPT, runner.context - CHECKED[-1] - 2))
    warm, timed = set[int](), dict[int, list[float]]()
    begun = perf_counter()
    for length in CHECKED * (1 + ROUNDS):
        if perf_counter() - begun > BUDGET_S:
            break
        stepped = _copied(runner, prompt, length)
        rows = 1 + stepped.drafted
        if rows in warm:
            timed.setdefault(rows, []).append(stepped.verify_ms)
        warm.add(rows)
    runner.target.keep(0)
    return {rows: min(ms) for rows, ms in timed.items()}


def _copied(runner: Runner, prompt: list[int], length: int) -> Stepped:
    """A step after `prompt`, one token over and over, that drafts `length` tokens more of it."""
    runner.target.begin(prompt)
    reply = runner.reply(Sampling(), prompt, ())
    try:
        return reply.step(Repeating(), length, "coupled")
    finally:
        reply.close()


def _steps(runner: Runner, strategy: str, length: int, most: int) -> list[tuple[float, Stepped]]:
    """Milliseconds and outcome of up to `most` steps after the warm-up."""
    prompt = [0] * max(1, min(PROMPT, runner.context - (most + WARM_UP) * (length + 1) - 1))
    runner.target.begin(prompt)
    drafter = runner.drafters[strategy]
    drafter.begin(prompt)
    reply = runner.reply(Sampling(), prompt, ())
    timed: list[tuple[float, Stepped]] = []
    begun = perf_counter()
    try:
        for i in range(most + WARM_UP):
            if reply.room <= length:
                break
            start = perf_counter()
            stepped = reply.step(drafter, length, "coupled")
            if i >= WARM_UP:
                timed.append((1e3 * (perf_counter() - start), stepped))
            if timed and perf_counter() - begun > BUDGET_S:
                break
    finally:
        reply.close()
        runner.target.keep(0)
    return timed

"""Times a target's checks with other forms of its rows on a CPU, beside the form in use."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

from specchat.bench.verify_cost import PROMPT_TOKENS, check_ms
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import Activations, PairSpec
from specchat.engine.session import Session

ROWS = (1, 4, 8)
TURNS = 9
CHECKS = "checks of 1, 4 and 8 tokens"
NEEDS = "its price in quality is not measured here (specchat check --activations)"


def other_rows(
    pair: PairSpec, session: Session, prices: Mapping[Activations, str], progress: Callable[[Loading], None]
) -> list[str]:
    """A sentence for each other form that the target's matrices take; `prices` say what a form does to the model.

    Each is loaded in turn beside the session's target, and both check ROWS tokens in turn.
    """
    said = []
    for form in session.info.load.forms[1:]:
        target = replace(pair.target, activations=form)
        try:
            other = load(replace(pair, target=target, draft=None, heads={}), progress)
        except EngineError as error:
            said.append(f"{form} rows were not measured: {error.message}")
            continue
        shares = ", ".join(f"{share:.2f}" for share in _shares(session, other))
        said.append(
            f"With {form} rows, instead of {session.info.load.forms[0]}, {CHECKS} take {shares} of the time; "
            f"{prices.get(form, NEEDS)}."
        )
    return said


def _shares(session: Session, other: Session) -> list[float]:
    """The time of checks of ROWS tokens of `other` in that of `session`: medians of ratios of neighbours in time."""
    runners = [session.runner, other.runner]
    prompt = [0] * PROMPT_TOKENS
    ratios: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(TURNS):
        for runner in runners:
            runner.target.begin(prompt)
        for rows, found in ratios.items():
            now, then = (check_ms(runner, prompt, rows) for runner in runners)
            found.append(then / now)
    for runner in runners:
        runner.target.keep(0)
    return [median(found) for found in ratios.values()]

"""What `bench --decide` found, in tables and in words."""

from collections.abc import Sequence

from specchat.bench.decide import ALL, CHEAPER, DEARER, RARER, Decided, Decision, DraftChoice
from specchat.bench.summary import AUTO, PLAIN, family_of
from specchat.bench.table import aligned
from specchat.bench.verdict import verdict

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 15)
"""Draft lengths that break-evens are told of."""
WORDS_AT = 8
"""The one that is put into words."""


def decided_text(decided: Decided, head: str, notes: Sequence[str]) -> str:
    """All that `bench --decide` prints; `head` says what was measured, `notes` what else there is to know."""
    parts = (
        head + "; times are over plain decoding",
        "Who should draft, and how far:\n" + decisions_table(decided),
        f"What steps cost, in plain steps of {decided.costs.plain_ms:.2f} ms:\n" + checks_table(decided),
        "Of its drafted tokens so many must stay for a draft of 1, 2, ... to pay, and so many stayed:\n"
        + break_even_table(decided),
        "What would promise most if things were otherwise:\n" + otherwise_table(decided),
        "In words:\n" + "".join(f"- {sentence}\n" for sentence in in_words(decided)),
    )
    overall = decided.decisions[-1]
    last = verdict(overall.measured, overall.prompts)
    return "\n\n".join(part.rstrip("\n") for part in (*parts, *notes, last) if part) + "\n"


def decisions_table(decided: Decided) -> str:
    """A row a category: what promises most, its run, the fastest of all runs, and `auto`."""
    rows: list[tuple[str, ...]] = [
        (
            "",
            "prompts",
            "promises most",
            "x plain",
            "as it ran",
            "expected",
            "measured",
            "fastest run",
            "x plain",
            "auto",
        ),
    ]
    for d in decided.decisions:
        ran = ("", "", "") if d.expected is None else (
            d.best.contender, f"{d.expected:.2f}", _times(d.measured.get(d.best.contender)))  # fmt: skip
        fastest = _fastest(d)
        auto = _times(d.measured.get(AUTO))
        choice = (_choice(d.best), f"{d.best.times:.2f}")
        rows.append((d.category, str(d.prompts), *choice, *ran, fastest[0], f"{fastest[1]:.2f}", auto))
    return aligned(rows)


def checks_table(decided: Decided) -> str:
    """v(M), by the tokens that a check has: the drafted ones and the pending one."""
    checks = decided.costs.checks
    rows = [m for m in (1, *(length + 1 for length in LENGTHS)) if m <= len(checks)]
    return aligned([
        ("tokens checked", *map(str, rows)), ("cost", *(f"{checks[m - 1]:.2f}" for m in rows))
    ])  # fmt: skip


def break_even_table(decided: Decided) -> str:
    """A row a contender: what its tokens cost, what must stay by draft length, what was drafted and what stayed."""
    lengths = _lengths(decided)
    rows: list[tuple[str, ...]] = [("", "a token", "besides", *map(str, lengths), "mean draft", "stayed")]
    for outcome in decided.outcomes:
        name, share = outcome.contender, outcome.kept_share
        shares = (_share(decided.break_even(name, length)) for length in lengths)
        costs = (f"{decided.costs.draft[name]:.2f}", f"{decided.costs.other[name]:.2f}")
        seen = ("", "") if share is None else (f"{outcome.mean_draft:.1f}", f"{share:.0%}")
        rows.append((name, *costs, *shares, *seen))
    return aligned(rows)


def otherwise_table(decided: Decided) -> str:
    """A row a category, a column a change."""
    rows: list[tuple[str, ...]] = [
        (
            "",
            "as it is",
            f"checks {DEARER:g}x as dear",
            f"drafts {CHEAPER:g}x as dear",
            f"tokens stay {RARER:g}x as often",
        )
    ]
    for d in decided.decisions:
        choices = (d.best, d.dearer_checks, d.cheaper_drafts, d.fewer_kept)
        rows.append((d.category, *(f"{_choice(choice)} {choice.times:.2f}" for choice in choices)))
    return aligned(rows)


def in_words(decided: Decided) -> list[str]:
    """A sentence or two for each thing to know."""
    by_choice: dict[str, list[Decision]] = {}
    for d in decided.decisions:
        if d.category != ALL or len(decided.decisions) == 1:
            by_choice.setdefault(_fastest(d)[0], []).append(d)
    said = [_which(name, of_it) for name, of_it in by_choice.items()]
    checks = decided.costs.checks
    said.append(f"A token more in a check costs {(checks[-1] - checks[0]) / (len(checks) - 1):.2f} of a plain step.")
    for outcome in decided.outcomes:
        if outcome.contender in by_choice and outcome.kept_share is not None and len(checks) > WORDS_AT:
            needed = decided.break_even(outcome.contender, WORDS_AT)
            pays = "cannot pay" if needed > 1 else f"pays where more than {_share(needed)} of it stay"
            family = family_of(outcome.contender)
            said.append(f"A draft of {WORDS_AT} by {family} {pays}; {outcome.kept_share:.0%} of its tokens stayed.")
    return said


def _which(name: str, decisions: Sequence[Decision]) -> str:
    """Who was fastest as it ran, and how far it promises most; what was measured goes before what is promised."""
    if name == PLAIN:
        return f"Nothing was faster than plain decoding: {_listed([d.category for d in decisions])}."
    times = _listed([f"{d.category} {d.measured[name]:.2f}x" for d in decisions])
    lengths = sorted({d.best.length for d in decisions if d.best.contender == name})
    if not lengths:
        return f"{family_of(name)} was fastest: {times}."
    far = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]}"
    return f"{family_of(name)} was fastest, and promises most when drafting at most {far} tokens: {times}."


def _fastest(decision: Decision) -> tuple[str, float]:
    """The fastest run that was not `auto`'s."""
    runs = {PLAIN: 1.0} | {name: times for name, times in decision.measured.items() if name != AUTO}
    return max(runs.items(), key=lambda run: run[1])


def _lengths(decided: Decided) -> list[int]:
    return [length for length in LENGTHS if length < len(decided.costs.checks)]


def _choice(choice: DraftChoice) -> str:
    return f"{family_of(choice.contender)} {choice.length}" if choice.length else choice.contender


def _times(times: float | None) -> str:
    return "" if times is None else f"{times:.2f}"


def _share(share: float) -> str:
    return "never" if share > 1 else f"{max(share, 0.0):.0%}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " and " * (len(words) > 1) + words[-1]

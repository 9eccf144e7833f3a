"""Tables and sentences of `bench --decide`."""

from collections.abc import Sequence

from specchat.bench.decide import ALL, CHEAPER, DEARER, RARER, Decided, Decision, DraftChoice
from specchat.bench.summary import AUTO, PLAIN, family_of, verdict
from specchat.bench.table import aligned

TABLE_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 15)
"""Draft lengths of the break-even table."""
SENTENCE_LENGTH = 8
"""Draft length of the sentences."""


def decided_text(decided: Decided, head: str, notes: Sequence[str]) -> str:
    """The output of `bench --decide`; `head` describes the measurement, `notes` are further remarks."""
    parts = (
        head + "; times are over plain decoding",
        "Who should draft, and how far:\n" + decisions_table(decided),
        f"What steps cost, in plain steps of {decided.costs.plain_ms:.2f} ms:\n" + checks_table(decided),
        "Share of draft tokens that must be accepted for a draft of 1, 2, ... to pay, and the share that was:\n"
        + break_even_table(decided),
        "The best choice by estimate under other conditions:\n" + otherwise_table(decided),
        "In words:\n" + "".join(f"- {sentence}\n" for sentence in in_words(decided)),
    )
    overall = decided.decisions[-1]
    last = verdict(overall.measured, overall.prompts)
    return "\n\n".join(part.rstrip("\n") for part in (*parts, *notes, last) if part) + "\n"


def decisions_table(decided: Decided) -> str:
    """A row per category: the best choice, its run, the fastest run, and `auto`."""
    rows: list[tuple[str, ...]] = [
        (
            "",
            "prompts",
            "best by estimate",
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
    """v(M) by tokens verified: the draft and the pending token."""
    checks = decided.costs.checks
    rows = [m for m in (1, *(length + 1 for length in TABLE_LENGTHS)) if m <= len(checks)]
    return aligned([
        ("tokens verified", *map(str, rows)), ("cost", *(f"{checks[m - 1]:.2f}" for m in rows))
    ])  # fmt: skip


def break_even_table(decided: Decided) -> str:
    """A row per contender: token cost, break-even acceptance by draft length, mean draft and acceptance."""
    lengths = _lengths(decided)
    rows: list[tuple[str, ...]] = [("", "a token", "besides", *map(str, lengths), "mean draft", "accepted")]
    for outcome in decided.outcomes:
        name, share = outcome.contender, outcome.kept_share
        shares = (_share(decided.break_even(name, length)) for length in lengths)
        costs = (f"{decided.costs.draft[name]:.2f}", f"{decided.costs.other[name]:.2f}")
        seen = ("", "") if share is None else (f"{outcome.mean_draft:.1f}", f"{share:.0%}")
        rows.append((name, *costs, *shares, *seen))
    return aligned(rows)


def otherwise_table(decided: Decided) -> str:
    """A row per category, a column per alternative."""
    rows: list[tuple[str, ...]] = [
        (
            "",
            "as it is",
            f"verifying {DEARER:g}x as dear",
            f"drafting {CHEAPER:g}x as dear",
            f"acceptance {RARER:g}x as likely",
        )
    ]
    for d in decided.decisions:
        choices = (d.best, d.dearer_checks, d.cheaper_drafts, d.fewer_kept)
        rows.append((d.category, *(f"{_choice(choice)} {choice.times:.2f}" for choice in choices)))
    return aligned(rows)


def in_words(decided: Decided) -> list[str]:
    """The findings as sentences."""
    by_choice: dict[str, list[Decision]] = {}
    for d in decided.decisions:
        if d.category != ALL or len(decided.decisions) == 1:
            by_choice.setdefault(_fastest(d)[0], []).append(d)
    sentences = [_which(name, of_it) for name, of_it in by_choice.items()]
    checks = decided.costs.checks
    sentences.append(
        f"Each further token to verify costs {(checks[-1] - checks[0]) / (len(checks) - 1):.2f} of a plain step."
    )
    for outcome in decided.outcomes:
        if outcome.contender in by_choice and outcome.kept_share is not None and len(checks) > SENTENCE_LENGTH:
            needed = decided.break_even(outcome.contender, SENTENCE_LENGTH)
            pays = "cannot pay" if needed > 1 else f"pays where more than {_share(needed)} are accepted"
            family = family_of(outcome.contender)
            sentences.append(
                f"A draft of {SENTENCE_LENGTH} tokens by {family} {pays}; {outcome.kept_share:.0%} were accepted."
            )
    return sentences


def _which(name: str, decisions: Sequence[Decision]) -> str:
    """Names the fastest contender and its best draft length; measured figures come before expected ones."""
    if name == PLAIN:
        return f"Nothing was faster than plain decoding: {_listed([d.category for d in decisions])}."
    times = _listed([f"{d.category} {d.measured[name]:.2f}x" for d in decisions])
    lengths = sorted({d.best.length for d in decisions if d.best.contender == name})
    if not lengths:
        return f"{family_of(name)} was fastest: {times}."
    far = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]}"
    return f"{family_of(name)} was fastest, by estimate best with at most {far} tokens: {times}."


def _fastest(decision: Decision) -> tuple[str, float]:
    runs = {PLAIN: 1.0} | {name: times for name, times in decision.measured.items() if name != AUTO}
    return max(runs.items(), key=lambda run: run[1])


def _lengths(decided: Decided) -> list[int]:
    return [length for length in TABLE_LENGTHS if length < len(decided.costs.checks)]


def _choice(choice: DraftChoice) -> str:
    return f"{family_of(choice.contender)} {choice.length}" if choice.length else choice.contender


def _times(times: float | None) -> str:
    return "" if times is None else f"{times:.2f}"


def _share(share: float) -> str:
    return "never" if share > 1 else f"{max(share, 0.0):.0%}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " and " * (len(words) > 1) + words[-1]

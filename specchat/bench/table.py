"""Formats figures as tables."""

import sys
from collections.abc import Sequence
from math import inf
from operator import attrgetter
from shutil import get_terminal_size

from specchat.bench.paired import MIN_ROUNDS, PairedRatio
from specchat.bench.summary import AUTO, PLAIN, ContenderSummary, Spread, family_of
from specchat.bench.verify_cost import VerifyCost

LINES_HEAD = (
    *("", "tok/s", "x plain", "quartiles", "least", "whole", "least", "AL", "accepted", "of tested"),
    *("first ms", "draft ms", "verify ms", "other ms"),
)
GAP = "  "


def lines_table(lines: Sequence[ContenderSummary], names: dict[str, str]) -> str:
    """A row per contender; `names` maps other programs to our contender in the last column."""
    rivals = any(line.ours_over for line in lines)
    rows = [(*LINES_HEAD, "same text", *(("ours over it", "quartiles", "whole") if rivals else ()))]
    for line in lines:
        row = [
            line.contender,
            _number(line.tokens_per_second, 0),
            _number(line.speedup_vs_plain, 2) if line.contender != "plain" else "1.00",
            _quartiles(line.speedup_vs_plain),
            _least(line.least_vs_plain),
            _number(line.whole_speedup_vs_plain, 2) if line.contender != "plain" else "1.00",
            _least(line.least_whole_vs_plain),
            _figure(line.mean_acceptance_length),
            "" if line.draft_acceptance_rate is None else f"{line.draft_acceptance_rate:.0%}",
            "" if line.tested_acceptance_rate is None else f"{line.tested_acceptance_rate:.0%}",
            _number(line.ttft_ms, 0),
            *(_number(figure, 2) for figure in (line.draft_ms, line.verify_ms, line.other_ms)),
            f"{line.identical}/{line.prompts}",
        ]
        if rivals:
            ours = names.get(line.contender, "")
            row += [f"{ours} {_number(line.ours_over, 2)}" if line.ours_over else ""]
            row += [_quartiles(line.ours_over), _number(line.whole_ours_over, 2)]
        rows.append(tuple(row))
    return aligned(rows)


def places_table(lines: Sequence[ContenderSummary]) -> str:
    """Acceptance rate per position, a row per strategy; empty without drafts."""
    drafting = [line for line in lines if line.by_place]
    if not drafting:
        return ""
    widest = max(len(line.by_place) for line in drafting)
    rows: list[tuple[str, ...]] = [("accepted at position", *(str(i) for i in range(1, widest + 1)))]
    rows += [(line.contender, *(f"{share:.0%}" for share in line.by_place)) for line in drafting]
    return aligned(rows)


def categories_table(categories: dict[str, list[ContenderSummary]]) -> str:
    """Speedup over plain by category, a column per contender; empty if plain is the only one."""
    names = [line.contender for line in next(iter(categories.values()), []) if line.contender != "plain"]
    rows: list[tuple[str, ...]] = [("x plain", *names)]
    for category, lines in categories.items():
        of = {line.contender: line.speedup_vs_plain for line in lines}
        rows.append((category, *(_number(of.get(name), 2) for name in names)))
    return aligned(rows) if names else ""


def auto_table(
    categories: dict[str, list[ContenderSummary]], everything: Sequence[ContenderSummary], whole: bool = False
) -> str:
    """Speedup of `auto` over each other strategy by category, of all steps or `whole` replies; empty without others."""
    over = attrgetter("whole_auto_over" if whole else "auto_over")
    names = [line.contender for line in everything if over(line) and family_of(line.contender) not in (PLAIN, AUTO)]
    rows: list[tuple[str, ...]] = [("auto over, whole" if whole else "auto over", *names)]
    for category, lines in (*categories.items(), ("all", everything)):
        by_name = {line.contender: over(line) for line in lines}
        rows.append((category, *(_number(by_name.get(name), 2) for name in names)))
    return aligned(rows) if names else ""


def cost_table(costs: Sequence[VerifyCost]) -> str:
    """The cost of a step by the number of verified tokens."""
    rows: list[tuple[str, ...]] = [("tokens", "ms", "quartiles", "x one")]
    rows += [(str(c.rows), f"{c.ms.median:.2f}", _quartiles(c.ms), f"{c.ratio:.2f}") for c in costs]
    return aligned(rows)


def _number(spread: Spread | None, digits: int) -> str:
    return "" if spread is None else f"{spread.median:.{digits}f}"


def _quartiles(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.low:.2f}-{spread.high:.2f}"


def _least(ratio: PairedRatio | None) -> str:
    """The ratio on the worst prompt, with its interval if that took rounds enough."""
    if ratio is None:
        return ""
    return f"{ratio.times:.2f}" + (f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.rounds >= MIN_ROUNDS else "")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Align cells, the first column left and the others right; short rows are padded.

    A table wider than the terminal continues below, with the first column repeated.
    """
    columns = max(len(row) for row in rows)
    full = [(*row, *[""] * (columns - len(row))) for row in rows]
    widths = [max(len(row[i]) for row in full) for i in range(columns)]
    parts: list[list[int]] = [[]]
    room = _room()
    for column in range(1, columns):
        taken = widths[0] + sum(len(GAP) + widths[i] for i in (*parts[-1], column))
        if parts[-1] and taken > room:
            parts.append([])
        parts[-1].append(column)
    return "\n".join("".join(f"{_line(row, part, widths)}\n" for row in full) for part in parts)


def _line(row: Sequence[str], part: Sequence[int], widths: Sequence[int]) -> str:
    return GAP.join((row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in part))).rstrip()


def _room() -> float:
    """Cells of a line; unbounded outside a terminal."""
    return get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else inf

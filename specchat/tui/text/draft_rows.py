"""The drafts of a step as rows: each with its probability and its fate, those of a tree as its branches."""

from textual.content import Content

from specchat.chat.sources import REJECTED
from specchat.clean import clean
from specchat.engine.protocol.events import Drafted, Step
from specchat.engine.protocol.step_tree import PENDING, StepTree
from specchat.tui.text.lines import EMPTY, styled

_MOST = 24
"""Characters of a token that are shown."""


def quoted(text: str) -> str:
    """A token's text in one row, in quotes."""
    shown = clean(text).replace("\n", "↵").replace("\t", "⇥")
    return f"“{shown if len(shown) <= _MOST else shown[: _MOST - 1] + '…'}”"


def chain_row(step: Step, here: int | None) -> Content:
    """`“a” 97 % ▸“fox” 88 % “or” 41 % rejected`: all drafts in order; the one at place `here`, from 0, is marked."""
    shown = []
    for number, draft in enumerate(step.drafts):
        accepted = number < step.accepted
        style = (".value" if number == here else ".label") if accepted else REJECTED.style
        fate = styled("" if accepted else " rejected", ".label")
        shown.append(styled("▸" if number == here else "", ".value") + _draft(draft, style) + fate)
    return Content(" ").join(shown)


def tree_rows(step: Step, most: int, behind: int | None = None) -> list[Content]:
    """The branches of the step's drafts in at most `most` rows, accepted ones with `✓`; the last row counts the others.

    With `behind`, only the candidates for the place behind that draft (-1: behind the pending token): rejected ones
    with all that was drafted after them, the accepted one with what was accepted after it.
    """
    candidates = StepTree.of(step.drafts).candidates()
    if behind is not None:
        for own in range(behind + 1, step.accepted):
            candidates[own] = [draft for draft in candidates.get(own, ()) if draft < step.accepted]
    rows: list[Content] = []
    left = 0
    # A stack: a file may hold a tree of any depth.
    waiting = _branches(candidates.get(PENDING if behind is None else behind, []), "")
    while waiting:
        draft, indent, last = waiting.pop()
        run = [draft]
        while len(after := candidates.get(run[-1], [])) == 1:
            run += after
        waiting += _branches(after, indent + ("  " if last else "│ "))
        if len(rows) < most:
            shown = Content(" → ").join(_in_tree(step, one) for one in run)
            rows.append(styled(f"{indent}{'└' if last else '├'} ", ".label") + shown)
        else:
            left += len(run)
    if left and rows:
        rows[-1] += styled(f"  … {left:,} more", ".label")
    return rows


def _branches(drafts: list[int], indent: str) -> list[tuple[int, str, bool]]:
    """Drafts that follow the same one, the first on top of the stack, with whether each is the last of them."""
    return [(draft, indent, draft == drafts[-1]) for draft in reversed(drafts)]


def _in_tree(step: Step, number: int) -> Content:
    accepted = number < step.accepted
    return styled("✓" if accepted else "", ".value") + _draft(
        step.drafts[number], ".value" if accepted else REJECTED.style
    )


def _draft(draft: Drafted, style: str) -> Content:
    chance = EMPTY if draft.probability is None else styled(f" {100 * draft.probability:.0f} %", ".label")
    return styled(quoted(draft.text), style) + chance

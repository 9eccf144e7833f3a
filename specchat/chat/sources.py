"""The sources of a reply's tokens, each with its colour's name and words, and the drafts that a step rejected."""

from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.step_tree import StepTree, branched, likeliest
from specchat.engine.strategies import GRAMMAR, SERVER, STRATEGIES
from specchat.engine.strategy import Group


@dataclass(frozen=True)
class Source:
    """`name` is its colour's in a theme file; `words` name it in the legend, `meaning` explains it in the help."""

    name: str
    words: str
    meaning: str

    @property
    def style(self) -> str:
        """A component class of the transcript."""
        return f".spec-{self.name}"


_ACCEPTED = "drafted by the helper (a small model or heads), accepted by the model"
DRAFTED: dict[Group, Source] = {
    "model": Source("draft", "draft accepted", _ACCEPTED),
    "heads": Source("draft", "draft accepted", _ACCEPTED),
    "copied": Source("lookup", "copied from the chat", "copied from an earlier text, accepted by the model"),
    "itself": Source("swift", "own short cut accepted", "drafted by a part of the model, accepted by the whole"),
}
"""Colours of accepted drafts, one a group of strategies; models and heads share one, since a dozen look alike."""

PLAIN = Source("plain", "plain", "written without a draft")
TARGET = Source("target", "correction", "the model's own, where it rejected a draft")
BONUS = Source("bonus", "bonus", "the model's own, after a draft accepted to its end")
REJECTED = Source("rejected", "draft rejected", "drafted, and not what the model would have written")

FORCED = Source("lookup", "forced by a grammar", "all that a grammar allowed, accepted by the model")
"""In few replies, so that the legend leaves it out."""

LEGEND = (*dict.fromkeys(DRAFTED.values()), TARGET, BONUS, PLAIN, REJECTED)


def source_of(name: str) -> Source:
    """Look of a piece's source; unknown sources look plain."""
    if name in STRATEGIES:
        return DRAFTED.get(STRATEGIES[name].group, PLAIN)
    return {"target": TARGET, "bonus": BONUS, SERVER: DRAFTED["model"], GRAMMAR: FORCED}.get(name, PLAIN)


def rejected_text(step: Step) -> tuple[str, int]:
    """The rejected text that was drafted after what was accepted, and the number of other candidates for its place.

    Of a tree it is the likeliest candidate with the likeliest after it, to a leaf.
    """
    if not branched(step.drafts):
        return "".join(draft.text for draft in step.drafts[step.accepted :]), 0
    candidates, at = StepTree.of(step.drafts).candidates(), step.accepted - 1
    others = max(len(candidates.get(at, ())) - 1, 0)
    text = ""
    while at in candidates:
        at = likeliest(step.drafts, candidates[at])
        text += step.drafts[at].text
    return text, others

"""How each token source looks: a colour of the theme and a style that tells it apart without colour."""

from dataclasses import dataclass

from specchat.engine.strategies import STRATEGIES, Kind


@dataclass(frozen=True)
class Source:
    """`name` is its colour's in a theme file; `words` explain it in the legend."""

    name: str
    words: str

    @property
    def style(self) -> str:
        """A component class of the transcript."""
        return f".spec-{self.name}"


DRAFTED: dict[Kind, Source] = {
    "model": Source("draft", "draft kept"),
    "heads": Source("draft", "draft kept"),
    "copied": Source("lookup", "copied from the chat"),
    "itself": Source("swift", "own short-cut kept"),
}
"""Of accepted drafts: one colour for each kind of strategy, models and heads as one: nobody tells a dozen apart."""

PLAIN = Source("plain", "plain")
TARGET = Source("target", "correction")
BONUS = Source("bonus", "bonus")
REJECTED = Source("rejected", "draft refused")

LEGEND = (*dict.fromkeys(DRAFTED.values()), TARGET, BONUS, PLAIN, REJECTED)


def source_of(name: str) -> Source:
    """How a piece's source looks; unknown sources look plain."""
    if name in STRATEGIES:
        return DRAFTED.get(STRATEGIES[name].kind, PLAIN)
    return {"target": TARGET, "bonus": BONUS}.get(name, PLAIN)

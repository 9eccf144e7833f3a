"""How each token source looks: a colour of the theme and a style that tells it apart without colour."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """`style` names a component class of the transcript; `words` explain it in the legend."""

    name: str
    style: str
    words: str


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source("draft", ".spec-draft", "draft kept"),
        Source("lookup", ".spec-lookup", "copied from the chat"),
        Source("swift", ".spec-swift", "own short-cut kept"),
        Source("target", ".spec-target", "correction"),
        Source("bonus", ".spec-bonus", "bonus"),
        Source("plain", ".spec-plain", "plain"),
    )
}

REJECTED = Source("rejected", ".spec-rejected", "draft refused")


def style_of(source: str) -> str:
    """The style for a piece's source; unknown sources look plain."""
    return SOURCES.get(source, SOURCES["plain"]).style

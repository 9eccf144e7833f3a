"""The syntax of Go's text/template: texts, and actions in blocks (pkg.go.dev/text/template)."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_ACTION = re.compile(
    r"\{\{(-\s)?\s*+(/\*.*?\*/(?:\s-)?|(?:\"(?:\\.|[^\"\\])*+\"|`[^`]*+`|[^\"`}]|\}(?!\}))*+)\}\}", re.S
)
"""Its possessive quantifiers try nothing twice, which a hostile template would make endless."""
_TRIM = re.compile(r"\s-\Z")
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<text>\"(?:\\.|[^\"\\])*\"|`[^`]*`)|(?P<number>-?\d+)|(?P<name>\$?\w+|\$)|(?P<field>\.\w+)"
    r"|(?P<sign>:=|[=(),|.])"
)


class Untranslated(ValueError):
    """The template has something that is not read here, which the text names."""


class GoToken(NamedTuple):
    """A part of an action; `spaced` if a space precedes it."""

    kind: str
    text: str
    spaced: bool


@dataclass
class Node:
    """A text, or an action with its tokens; of a block `body` and `other` follow it and its else."""

    kind: str
    text: str = ""
    tokens: list[GoToken] = field(default_factory=list)
    body: list["Node"] = field(default_factory=list)
    other: list["Node"] = field(default_factory=list)


class Parser:
    """Texts and actions of a template as nested `nodes`.

    Raises:
        Untranslated: the syntax is wrong, or not read here.
    """

    def __init__(self, source: str) -> None:
        self._pieces = self._split(source)
        self._at = 0
        self.nodes, end, _ = self._list()
        if end:
            raise Untranslated(f"{{{{ {end} }}}} with no block")

    @staticmethod
    def _split(source: str) -> list[tuple[bool, str]]:
        """Pairs of a mark, True for an action, and what stands there, without comments."""
        pieces, start, trimmed = list[tuple[bool, str]](), 0, False
        while (at := source.find("{{", start)) >= 0:
            if (found := _ACTION.match(source, at)) is None:
                raise Untranslated("an action that does not end")
            text = source[start:at].lstrip() if trimmed else source[start:at]
            pieces.append((False, text.rstrip() if found[1] else text))
            start, trimmed = found.end(), _TRIM.search(found[2]) is not None
            if not found[2].startswith("/*"):
                pieces.append((True, (found[2][:-1] if trimmed else found[2]).strip()))
        return [*pieces, (False, source[start:].lstrip() if trimmed else source[start:])]

    def _list(self) -> tuple[list[Node], str, list[GoToken]]:
        """Nodes up to an end or else, which of both it is, and what follows the else."""
        nodes = list[Node]()
        while self._at < len(self._pieces):
            action, text = self._pieces[self._at]
            self._at += 1
            if not action:
                nodes += [Node("text", text)] if text else []
                continue
            tokens = _tokens(text)
            word = tokens[0].text if tokens else ""
            if word in ("end", "else"):
                return nodes, word, tokens[1:]
            if word in ("if", "range", "with"):
                nodes.append(self._branch(word, tokens[1:]))
            elif word in ("define", "template", "block"):
                raise Untranslated(f"{{{{ {word} }}}}")
            else:
                nodes.append(Node(word if word in ("break", "continue") else "print", tokens=tokens))
        return nodes, "", []

    def _branch(self, word: str, tokens: list[GoToken]) -> Node:
        body, end, more = self._list()
        other = list[Node]()
        if end == "else" and more:
            if more[0].text != "if":
                raise Untranslated(f"{{{{ else {more[0].text} }}}}")
            other, end = [self._branch("if", more[1:])], "end"
        elif end == "else":
            other, end, _ = self._list()
        if end != "end":
            raise Untranslated(f"{{{{ {word} }}}} without an end")
        return Node(word, "", tokens, body, other)


def _tokens(text: str) -> list[GoToken]:
    found, at, spaced = list[GoToken](), 0, True
    while at < len(text):
        if (one := _TOKEN.match(text, at)) is None:
            raise Untranslated(f"{{{{ {text[:40]} }}}}")
        if one.lastgroup != "space":
            found.append(GoToken(str(one.lastgroup), one[0], spaced))
        spaced, at = one.lastgroup == "space", one.end()
    return found

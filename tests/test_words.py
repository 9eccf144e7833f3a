"""Words that read badly in this project grow no more frequent: names that are no nouns, openings, phrases."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST = {
    "place": 158,
    "own": 135,
    "made": 138,
    "kept": 69,
    "given": 65,
    "beside": 29,
    "told": 30,
    "What ...": 2,
    "Where ...": 2,
    "Those ...": 1,
    "As ...": 1,
}
"""Occurrences of each: identifiers bound, first words of docstrings, phrases. Lower a number where there are fewer."""
NAMES = ("place", "own", "made", "kept", "given", "beside", "told")
OPENINGS = ("What", "Whether", "Which", "Where", "Who", "That", "Those", "Of", "As")
PHRASES = ("so much as", "whoever", "asked after", "is to be had", "there where")
BINDING = {ast.arg, ast.Name, ast.Attribute, ast.FunctionDef, ast.AsyncFunctionDef, ast.Expr}
"""Nodes that may have one: most are others, and matching takes long."""
HUNK = re.compile(r"^\+\+\+ b/(?P<path>.*)$|^@@ -\S+ \+(?P<first>\d+)(,(?P<count>\d+))? @@", re.M)


def words(text: str) -> Iterator[tuple[str, int]]:
    """Each listed word in the source `text`, with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((phrase, number) for phrase in PHRASES if phrase in line.lower())
    for node in ast.walk(ast.parse(text)):
        if type(node) not in BINDING:
            continue
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found = name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found = name
            case ast.Expr(value=ast.Constant(value=str(string))):
                opening = re.match(r"\s*(\w+)", string)
                if opening and opening[1] in OPENINGS:
                    yield f"{opening[1]} ...", node.lineno
                continue
            case _:
                continue
        if found.strip("_") in NAMES:
            yield found.strip("_"), node.lineno


def added() -> dict[str, set[int]]:
    """Lines that came since this file was last committed, by path; none where git does not know."""
    command = ["git", "log", "-1", "--format=%H", "--", str(Path(__file__).relative_to(ROOT))]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    diff = subprocess.run(["git", "diff", "-U0", commit, "--", "specchat"], cwd=ROOT, capture_output=True, text=True)
    found: dict[str, set[int]] = {}
    path = ""
    for hunk in HUNK.finditer(diff.stdout if commit else ""):
        if hunk["path"]:
            path = hunk["path"]
        else:
            first = int(hunk["first"])
            found.setdefault(path, set()).update(range(first, first + int(hunk["count"] or 1)))
    return found


@pytest.fixture(scope="module")
def occurrences() -> dict[str, list[tuple[str, int]]]:
    """Paths and lines of each word in the package."""
    found: dict[str, list[tuple[str, int]]] = {word: [] for word in MOST}
    for path in sorted((ROOT / "specchat").rglob("*.py")):
        for word, line in words(path.read_text(encoding="utf-8")):
            found.setdefault(word, []).append((path.relative_to(ROOT).as_posix(), line))
    return found


def test_no_word_grows_more_frequent(occurrences: dict[str, list[tuple[str, int]]]) -> None:
    excess = {word: places for word, places in occurrences.items() if len(places) > MOST.get(word, 0)}
    new = added() if excess else {}
    told = []
    for word, places in excess.items():
        here = [place for place in places if place[1] in new.get(place[0], ())] or places
        told += [f"{word}: {len(places)}, at most {MOST.get(word, 0)}", *(f"  {path}:{line}" for path, line in here)]
    assert not excess, "words that CONTRIBUTING asks to avoid\n" + "\n".join(told)


def test_words_are_found_where_they_are_bound() -> None:
    text = (
        '"""Of a thing."""\ndef f(place, *, own=1):\n    """As is."""\n'
        "    self.made = kept = 1  # whoever asks\n    f(given=2)\n"
    )
    assert sorted(words(text)) == [
        ("As ...", 3), ("Of ...", 1), ("kept", 4), ("made", 4), ("own", 2), ("place", 2), ("whoever", 4),
    ]  # fmt: skip

"""The list of strategies: one file adds one, nothing else names one, and reading it takes no torch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.engine import drafters
from specchat.engine.backends import BACKENDS, UNSUPPORTED, declared
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.strategies import HEADS, STRATEGIES, found
from tests.engine.test_lossless import finished, reply

ROOT = Path(__file__).parents[2]
COMMON = {"plain", "auto", "draft"}
"""What everything knows: no drafting, the choice among all, and the draft model, whose name is a role and a key."""
NAMED = {
    "bench/peers": "strategies of other programs that do the same",
    "config/models_file.py": "heads that are shipped, by their folders",
    "engine/heads": "keys and values of the heads' own files",
    "engine/text/marks.py": "the words before and after a mark",
    "engine/tool_calls/tags.py": "the words before and after a tag",
    "chat/sources.py": "keys of colours in themes",
    "serve/ollama.py": "the field for the text behind a gap",
    "serve/openai_text.py": "the same",
    "serve_command": "methods of other engines that do the same",
    "tune": "heads that can be trained",
}
"""Where else such words stand, and what they mean there."""


def example() -> str:
    """The strategy that docs/strategies.md shows."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "strategies.md").read_text("utf-8"), re.DOTALL)
    return str(blocks[0])


def test_a_strategy_is_one_file(tiny_pair: PairSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the page, in a folder of its own: it drafts, some of it is accepted, and the text is plain decoding's."""
    (tmp_path / "repeat.py").write_text(example(), "utf-8")
    monkeypatch.setattr(drafters, "__path__", [*drafters.__path__, str(tmp_path)])
    monkeypatch.setitem(sys.modules, "specchat.engine.drafters.repeat", None)  # type: ignore[arg-type]
    del sys.modules["specchat.engine.drafters.repeat"]
    listed = found()
    assert listed.keys() - STRATEGIES.keys() == {"repeat"}
    monkeypatch.setitem(STRATEGIES, "repeat", listed["repeat"])
    session = load(tiny_pair, lambda _: None)
    assert session.info.strategy("repeat").available
    sampling = Sampling(logit_bias=dict.fromkeys(session.tokenizer.backend.encode("ab").ids, 9.0))
    plain, drafted = (
        finished(reply(session, "abab", sampling, Limits(40), Speculation(name, 4))) for name in ("plain", "repeat")
    )
    assert plain.token_ids == drafted.token_ids
    assert 0 < drafted.stats.num_accepted_draft_tokens < drafted.stats.num_draft_tokens


def named(path: Path) -> Iterator[tuple[int, str]]:
    """The names of strategies and heads that stand in a file as texts, with their lines."""
    names, text = {*STRATEGIES, *HEADS} - COMMON, path.read_text("utf-8")
    # Parsing a file takes a hundred times as long.
    if not re.search(f"[\"'](?:{'|'.join(map(re.escape, names))})[\"']", text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in names:
            yield node.lineno, str(node.value)


def test_no_other_file_names_a_strategy() -> None:
    package = ROOT / "specchat"
    allowed = ("engine/drafters", *NAMED)
    files = [path for path in package.rglob("*.py") if not str(path.relative_to(package)).startswith(allowed)]
    assert len(files) > 300
    assert [f"{path}:{line}: {name}" for path in files for line, name in named(path)] == []


@pytest.mark.parametrize("where", NAMED)
def test_each_exception_is_one(where: str) -> None:
    place = ROOT / "specchat" / where
    assert any(any(named(path)) for path in (place.rglob("*.py") if place.is_dir() else [place]))


def test_the_list_is_read_without_what_runs_a_model() -> None:
    heavy = "torch", "numpy", "pydantic", "transformers", "textual"
    code = f"import sys, specchat.engine.strategies; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_pair_lacks_is_told_by_the_descriptor(backend: str) -> None:
    """Without a draft, heads or what a backend lacks; what needs nothing is there."""
    bare, whole = declared(False, (), backend), declared(True, HEADS, backend)
    for name, one in STRATEGIES.items():
        needs = one.needs_draft or (one.head is not None and not one.head.in_target)
        assert bool(one.unsupported(bare)) >= (needs or bool(one.unsupported(whole))), name
    assert bool(STRATEGIES["auto"].unsupported(bare)) == ("choice" in UNSUPPORTED[backend])

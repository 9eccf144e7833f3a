"""A pair gives arguments to its target's chat template, and what the template makes of them is what is known of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.engine.errors import ModelError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Arguments, Limits, Message
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate
from tests.engine.tiny import checkpoint, on_cpu

pytestmark = pytest.mark.usefixtures("unmeasured")

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% if effort %}{{ effort }}{% endif %}"
    "{% if thinking %}{% endif %}{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = checkpoint(tmp_path / "m")
    told = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps(told | {"chat_template": TEMPLATE}))
    return made


def prompt(folder: Path, **arguments: str | int | bool) -> tuple[str, bool]:
    """The prompt of a question, and whether the reply begins with reasoning."""
    session = load(PairSpec("p", "P", on_cpu(folder), template=arguments), lambda _: None)
    tokens = session.tokenizer.prompt((Message("user", "hi"),))
    text = session.tokenizer.backend.decode(tokens, skip_special_tokens=False)
    return text, session.tokenizer.format.opened is not None


def test_they_change_the_prompt_and_what_is_known_of_it(folder: Path) -> None:
    assert prompt(folder) == ("<|user|>hi<|end|><|assistant|><think>\n", True)
    assert prompt(folder, enable_thinking=True)[1]
    assert prompt(folder, enable_thinking=False) == ("<|user|>hi<|end|><|assistant|><think>\n\n</think>\n\n", False)
    assert prompt(folder, effort="low")[0].endswith("<think>\nlow")


def test_one_that_the_template_does_not_take_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"no argument 'reasoning_effort' \(enable_thinking, thinking\)"):
        prompt(folder, reasoning_effort="low")


def test_without_a_template_there_are_none(folder: Path) -> None:
    told = json.loads((folder / "tokenizer_config.json").read_text())
    del told["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with pytest.raises(ModelError, match="this checkpoint has no chat template, so it takes no arguments"):
        prompt(folder, enable_thinking=False)


def test_a_reply_may_have_others_than_the_pair(folder: Path) -> None:
    session = load(PairSpec("p", "P", on_cpu(folder), template={"enable_thinking": True}), lambda _: None)
    # `thinking` changes nothing.
    assert session.info.template.choices == (("enable_thinking", (True, False)),)
    off: Arguments = (("enable_thinking", False), ("no_such", True))
    asked = Count(0, (Message("user", "hi"),))
    more = session.count(replace(asked, template=off)).tokens - session.count(asked).tokens
    ending = session.tokenizer.backend.encode("\n</think>\n\n", add_special_tokens=False).ids
    assert more == len(ending)
    limits = Limits(max_tokens=4)
    for template, reasoning in (((), True), (off, False), ((), True)):
        request = Generate(1, asked.messages, limits=limits, template=template)
        *_, last = session.generate(request)
        assert isinstance(last, Finished)
        assert last.token_ids
        assert bool(last.reasoning) == reasoning


EFFORT_TEMPLATES = {
    "any word": ("{{ reasoning_effort }}", ("low", "medium", "high")),
    "one known, others alike": ("{{ 'high' if reasoning_effort == 'high' else 'most' }}", ("high",)),
    "those known, others left out": ("{{ reasoning_effort if reasoning_effort in ('none', 'max') }}", ("none", "max")),
    "others refused": (
        "{% if reasoning_effort not in ('', 'low', 'high') %}{{ raise_exception('?') }}{% endif %}"
        "{{ reasoning_effort }}",
        ("low", "high"),
    ),
    "read only while it thinks": (
        "{% if enable_thinking %}{{ reasoning_effort if reasoning_effort in ('low', 'high') }}{% endif %}",
        ("low", "high"),
    ),
    "not read": ("{% if reasoning_effort %}{% endif %}", None),
}


@pytest.mark.parametrize("case", EFFORT_TEMPLATES)
def test_efforts_are_offered_that_the_template_tells_apart(case: str, folder: Path) -> None:
    source, offered = EFFORT_TEMPLATES[case]
    told = json.loads((folder / "tokenizer_config.json").read_text())
    written = "{% set reasoning_effort = reasoning_effort | default('') %}" + TEMPLATE + source
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"chat_template": written}))
    found = dict(load(PairSpec("p", "P", on_cpu(folder)), lambda _: None).info.template.choices)
    assert found.get("reasoning_effort") == offered

"""Chat templates with habits that the published ones of today do not have all, and templates that lose what is said."""

import re
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken

from specchat.engine.errors import ModelError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Role
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.text.habits import habits
from specchat.engine.text.template import TemplateSource
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine import tiny
from tests.engine.scripted import scripted
from tests.engine.tiny import on_cpu

pytestmark = pytest.mark.usefixtures("unmeasured")

PARTS = (
    "{% for m in messages %}<|{{ m.role }}|>{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""As of a model that sees pictures: a text is walked letter by letter, and nothing of it is left."""
LAST = "{% set m = messages[-1] %}<|user|>{{ m.content }}<|end|><|assistant|>"
NOTHING = "{% for m in messages %}<|{{ m.role }}|><|end|>{% endfor %}<|assistant|>"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + tiny.TEMPLATE
HEADED = "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}" + tiny.TEMPLATE
FIRST_ALONE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}" + tiny.TEMPLATE
)
"""As Qwen3.5's."""
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}" + tiny.TEMPLATE
)
"""As Gemma's."""
ROLES: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}
NEEDS_TOOLS = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}" + tiny.TEMPLATE


def made(template: str) -> Tokenizer:
    return Tokenizer(tiny.tokenizer(), Path("here.jinja"), {}, TemplateSource(template, Path("here.jinja")))


def text(tokenizer: Tokenizer, *messages: Message) -> str:
    return tokenizer.backend.decode(tokenizer.prompt(messages), skip_special_tokens=False)


def test_content_is_given_as_parts_where_a_text_would_be_lost() -> None:
    tokenizer = made(PARTS)
    said = text(tokenizer, Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "So?"))
    assert said == "<|user|>Hi<|end|><|assistant|>Yes?<|end|><|user|>So?<|end|><|assistant|>"
    assert dict(habits(tokenizer))["messages"] == "given as lists of typed parts"


def test_a_template_that_loses_what_is_asked_is_refused_with_its_file() -> None:
    with pytest.raises(ModelError, match=r"here.jinja: the chat template leaves out what is asked"):
        made(NOTHING).prompt([Message("user", "Hi")])
    broken = made("{{ messages.nothing.more }}")
    with pytest.raises(ModelError, match="nothing"):
        _ = broken.eos


def test_a_template_that_loses_earlier_turns_is_told() -> None:
    assert dict(habits(made(LAST)))["leaves out"] == "earlier turns"


def test_a_system_prompt_without_a_role_goes_before_the_first_message() -> None:
    tokenizer = made(NO_SYSTEM)
    chat = (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "So?"))
    assert text(tokenizer, *chat).startswith("<|user|>Be brief.\n\nHi<|end|><|assistant|>Yes?")
    assert not tokenizer.format.system
    assert text(tokenizer, Message("system", "Be brief.")) == "<|user|>Be brief.<|end|><|assistant|>"


def test_a_template_that_demands_a_system_message_gets_an_empty_one() -> None:
    tokenizer = made(HEADED)
    assert text(tokenizer, Message("user", "Hi")) == "<|system|><|end|><|user|>Hi<|end|><|assistant|>"
    chat = (Message("system", "Be brief."), Message("user", "Hi"))
    assert text(tokenizer, *chat) == "<|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>"


@pytest.mark.parametrize(
    ("template", "roles", "prompt"),
    [
        ("any place", "ssu", "system 0++1 user 2"),
        ("any place", "suas", "system 0 user 1 assistant 2 system 3"),
        ("first alone", "ssu", "system 0++1 user 2"),
        ("first alone", "us", "user 0++1"),
        ("first alone", "suasu", "system 0 user 1 assistant 2 user 3++4"),
        ("first alone", "usuu", "user 0++1 user 2 user 3"),
        ("alternating", "ssu", "user 0++1++2"),
        ("alternating", "suuaasu", "user 0++1++2 assistant 3++4 user 5++6"),
        ("alternating", "au", "user  assistant 0 user 1"),
    ],
)
def test_system_messages_go_where_the_template_takes_them(template: str, roles: str, prompt: str) -> None:
    known = {"any place": tiny.TEMPLATE, "first alone": FIRST_ALONE, "alternating": ALTERNATING}
    said = text(made(known[template]), *(Message(ROLES[role], str(n)) for n, role in enumerate(roles)))
    said = re.sub(r"<\|(\w+)\|>([^<]*)<\|end\|>", r"\1 \2 ", said).replace("\n\n", "++")
    assert said == f"{prompt} <|assistant|>"


def test_a_template_may_write_small_letters() -> None:
    tokenizer = made(tiny.TEMPLATE.replace("content", "content | lower"))
    assert "hi<|end|>" in text(tokenizer, Message("user", "Hi"))
    assert "leaves out" not in dict(habits(tokenizer))


def test_arguments_are_given_where_a_template_fails_without() -> None:
    assert text(made(NEEDS_TOOLS), Message("user", "Hi")) == "<|user|>Hi<|end|><|assistant|>"


def test_html_that_was_added_as_tokens_is_the_users_text() -> None:
    backend = tiny.tokenizer()
    tags = ["<table>", "</table>", "<b>", "<code>", "<think>", "<tool_call>", "<|turn|>"]
    backend.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    template = "<|turn|>" + tiny.TEMPLATE
    tokenizer = Tokenizer(backend, Path("here"), {}, TemplateSource(template, Path("here")))
    said = text(tokenizer, Message("user", "<table><b>x</b></table><code> <think><tool_call><|turn|>"))
    assert "<table><b>x</b></table><code> <\u200bthink><\u200btool_call><\u200b|turn|>" in said


@pytest.mark.parametrize(
    "costly",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) if range(99999) | sum < 0 %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ ('a' * 2000000000) | length }}",
        "{{ (9 ** (9 ** 9)) | string | length }}",
        "{{ ('%2000000000d' % 1) | length }}",
        "{{ '%2000000000d' | format(1) | length }}",
        "{{ 'a'.ljust(2000000000) | length }}",
    ],
)
def test_a_template_that_takes_too_much_is_refused(costly: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.engine.text.chat_template.MOST_S", 0.1)
    with pytest.raises(ModelError, match=r"too long|unsafe"):
        text(made(costly + tiny.TEMPLATE), Message("user", "Hi"))


@pytest.mark.parametrize(
    "large",
    [
        "{% for n in range(99999) %}{{ 'a' * 9000000 }}{% endfor %}",
        "{% macro f() %}{% for n in range(99999) %}{{ 'a' * 9000000 }}{% endfor %}{% endmacro %}{{ f() | length }}",
        "{% set all = [] %}{% for n in range(99999) %}{{ all.append('a' * 9000000) }}{% endfor %}",
        "{{ ('a' * 9000).replace('a', 'b' * 9000) | length }}",
        "{{ ('a' * 9000) | replace('a', 'b' * 9000) | length }}",
        "{{ ('b' * 9000).join(['a'] * 9000) | length }}",
        "{{ (['a'] * 9000) | join('b' * 9000) | length }}",
        "{{ (['a' * 9000] * 9000) | join | length }}",
        "{{ ('\t' * 9000).expandtabs(9000) | length }}",
        "{{ ('a' * 9000).translate({97: 'b' * 9000}) | length }}",
        "{{ ('{0}' * 9000).format('b' * 9000) | length }}",
        "{{ '{0:{1}}'.format('b', 99999999) | length }}",
        "{{ ('%s' * 9000) | format(*(['b' * 9000] * 9000)) | length }}",
        "{{ (('%s' * 9000) % ('b' * 9000)) | length }}",
        "{{ ('\n' * 9000) | indent(9000) | length }}",
        "{{ (['a' * 9000] * 9000) | tojson | length }}",
        "{{ ([([1] * 9000)] * 900) | tojson | length }}",
        "{{ (['a' * 9000] * 9000) | string | length }}",
        "{{ ([[1] * 9000] * 9000) | sum(start=[]) | length }}",
        *(
            f"{{% set ns = namespace(x=[1]) %}}{{% for n in range(99) %}}{step}{{% endfor %}}{{{{ ns.x }}}}"
            for step in (
                "{% set ns.x = [ns.x, ns.x] %}",
                "{% set ns.x = (ns.x, ns.x) %}",
                "{% set ns.x = {'a': ns.x, 'b': ns.x} %}",
                "{% set ns.x = dict(a=ns.x, b=ns.x) %}",
                "{% set ns.x = namespace(a=ns.x, b=ns.x) %}",
                "{% set new = [] %}{{ new.append(ns.x) }}{{ new.append(ns.x) }}{% set ns.x = new %}",
                "{% set new = namespace() %}{% set new.a = ns.x %}{% set new.b = ns.x %}{% set ns.x = new %}",
            )
        ),
    ],
)
def test_a_template_that_makes_too_much_is_refused_before_it_takes_memory(large: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match=r"makes too long|unsafe"):
        text(made(large + tiny.TEMPLATE), Message("user", "Hi"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # KB


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{{ 'a-b-c'.replace('-', '+', 1) }}{{ 'a-b' | replace('-', '+') }}", "a+b-ca+b"),
        ("{{ ', '.join(['a', 'b']) }}{{ [{'n': 1}, {'n': 2}] | join('-', attribute='n') }}", "a, b1-2"),
        ("{{ '{} {x}'.format(1, x=2) }}{{ '%s %d' | format('a', 3) }}{{ '%s' % 'b' }}", "1 2a 3b"),
        ("{{ [1, 2] | sum }}{{ 'a\nb' | indent(2) }}{{ 'ab' | list | length }}{{ [1] | string }}", "3a\n  b2[1]"),
        (
            "{% for a, b in {'x': [1]} | items %}{{ a }}{{ (b, 'y') }}{{ {'k': b} }}{% endfor %}",
            "x([1], 'y'){'k': [1]}",
        ),
    ],
)
def test_what_templates_make_of_texts_and_lists_is_as_in_jinja(written: str, read: str) -> None:
    assert text(made(written + tiny.TEMPLATE), Message("user", "Hi")).startswith(f"{read}<|user|>Hi")


def test_a_template_that_takes_too_long_for_one_chat_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.engine.text.chat_template.MOST_S", 0.5)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer = made(f"{{% if 'loop' in messages[0].content %}}{endless}{{% endif %}}{tiny.TEMPLATE}")
    assert text(tokenizer, Message("user", "Hi")) == "<|user|>Hi<|end|><|assistant|>"
    with pytest.raises(ModelError, match=r"refuses this chat: it takes too long\.$"):
        tokenizer.prompt([Message("user", "loop")])


@pytest.fixture
def ending_in_text(tmp_path: Path) -> Session:
    """A model whose template has no tokens: a reply ends where the user's next words would begin."""
    backend = tiny.tokenizer(["<s>"])
    words = ["Mice", " eat", "\n\nHum", "an:", " more"]
    backend.add_tokens(words)
    template = (
        "{% for m in messages %}{{ 'Human' if m.role == 'user' else 'Assistant' }}: {{ m.content }}\n\n{% endfor %}"
        "{% if add_generation_prompt %}Assistant:{% endif %}"
    )
    folder = scripted(tmp_path / "m", backend, [backend.token_to_id(word) for word in words], {}, template)
    return load(PairSpec("m", "M", on_cpu(folder)), lambda _: None)


def test_a_turn_that_ends_in_text_ends_the_reply(ending_in_text: Session) -> None:
    assert ending_in_text.tokenizer.format.stop == "\n\nHuman:"
    *_, last = ending_in_text.generate(Generate(1, (Message("user", "What?"),), limits=Limits(20)))
    assert isinstance(last, Finished)
    assert (last.text, last.reason) == ("Mice eat", "stop")


@pytest.mark.parametrize("known", [True, False], ids=["tokens", "text"])
def test_a_reply_that_was_cut_inside_a_stop_string_still_ends_there(ending_in_text: Session, known: bool) -> None:
    request = Generate(1, (Message("user", "What?"),), limits=Limits(3))
    *_, cut = ending_in_text.generate(request)
    assert isinstance(cut, Finished)
    assert (cut.text, cut.reason) == ("Mice eat\n\nHum", "length")
    begun = cut.written if known else replace(cut.written, token_ids=())
    *_, last = ending_in_text.generate(replace(request, begun=begun))
    assert isinstance(last, Finished)
    assert (last.text, last.reason, len(last.token_ids)) == ("Mice eat", "stop", 1)


@pytest.mark.parametrize("between", [". ", "\n---\n", "user", " "])
def test_words_that_replies_hold_end_none(between: str) -> None:
    template = f"{{{{ messages | map(attribute='content') | join({between!r}) }}}}"
    assert made(template).format.stop == ""


@pytest.mark.parametrize("mark", ["<answer>", "<|response_start|>"])
def test_a_prompt_that_ends_in_the_mark_of_an_answer_begins_no_reasoning(mark: str) -> None:
    backend = tiny.tokenizer()
    backend.add_tokens([mark, "</answer>", "<|response_end|>"])
    template = tiny.TEMPLATE.replace("<|assistant|>{% endif", f"<|assistant|>{mark}{{% endif")
    tokenizer = Tokenizer(backend, Path("here"), {}, TemplateSource(template + "{# </answer> #}", Path("here")))
    assert tokenizer.format.opened is None


def test_sentences_are_marks_only_where_a_template_has_them() -> None:
    """Any model may begin an answer with them."""
    says = "Here is my thought process: one."
    plain, own = (made(tiny.TEMPLATE + more) for more in ("", "{# Here is my response: #}"))
    assert [says.startswith(tuple(m.opening for m in each.format.marks)) for each in (plain, own)] == [False, True]


def test_a_model_without_a_template_says_so_once_it_is_loaded(tmp_path: Path) -> None:
    folder = tiny.checkpoint(tmp_path / "m", num_hidden_layers=1)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    warning = load(PairSpec("m", "M", on_cpu(folder)), lambda _: None).info.notes.warning
    assert warning == "This checkpoint has no chat template: the model goes on with your text as it stands."

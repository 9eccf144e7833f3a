"""Published chat templates: what is found out about each, and a model that writes as each expects, from end to end."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from transformers.utils.chat_template_utils import render_jinja_template

from specchat.engine.loading import load
from specchat.engine.protocol.events import Event, Finished, Step
from specchat.engine.protocol.options import Limits, Message, Role, Written
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.text.chat_format import FIELDS, PART
from tests.engine import tiny
from tests.engine.published_choices import OFFERED
from tests.engine.scripted import scripted
from tests.engine.tiny import on_cpu

TEMPLATES = Path(__file__).parents[3] / "shared" / "data" / "tokenizers" / "templates"
FILES = sorted(TEMPLATES.glob("*.jinja")) if TEMPLATES.is_dir() else []
MARK = re.compile(
    r"<\|[^<>|\s]+\|>|<｜[^<>｜\s]+｜>|\[/?[A-Z_]+\]|<[a-z_]+\|>|<\|[a-z_]+>|</?(?:sep|start_of_turn|end_of_turn)>"
    r"|<seed:[a-z]+>|\[gMASK\]|<sop>"
)
VISIBLE = ("<think>", "</think>", "<seed:think>", "</seed:think>", "<tool_call>", "</tool_call>")
"""Marks that published tokenizers add as tokens that are not special."""
SPELT = {
    "Here are my reasoning steps:": ("Here are my", " reasoning steps:"),
    "[BEGIN FINAL RESPONSE]": ("[BEGIN FINAL", " RESPONSE]"),
}
"""Marks that are no tokens."""
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
THOUGHT, ANSWER, INVENTED = ("Ponder", " deeply"), ("Mice", " eat", " cheese"), ("Now", " you")
RECIPIENT = "al", "l\n"
ASKED = Message("user", "What do they eat?")


@dataclass(frozen=True)
class Expected:
    """A template by hand: how it ends a turn, how its model marks reasoning, what it does with earlier reasoning."""

    end: str
    opening: str = ""
    closing: str = ""
    opened: bool = False
    field: str = ""
    system: bool = True
    channels: bool = False
    recipient: str = ""
    """The line before an answer."""


def thinking(end: str, *, opened: bool = False, field: str = "", tag: str = "think") -> Expected:
    return Expected(end, f"<{tag}>", f"</{tag}>", opened, field)


IM, DEEPSEEK, LLAMA = "<|im_end|>", "<｜end▁of▁sentence｜>", Expected("<|eot_id|>")
CONTENT = "reasoning_content"
EXPECTED: Mapping[str, Expected] = {
    "Apertus-8B-Instruct": Expected("<|assistant_end|>"),
    "Apriel-1.6-15b-Thinker-fixed": Expected("<|end|>", "", "[BEGIN FINAL RESPONSE]", True, CONTENT),
    "Bielik-11B-v3.0-Instruct": thinking(IM, field=CONTENT),
    "ByteDance-Seed-OSS": thinking("<seed:eos>", field=CONTENT, tag="seed:think"),
    "Cohere2MoE": Expected("<|END_TEXT|>", "<|START_THINKING|>", "<|END_THINKING|>", True, CONTENT),
    "CohereForAI-c4ai-command-r-plus-tool_use": Expected("<|END_OF_TURN_TOKEN|>"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": Expected("<|END_RESPONSE|>"),
    "GLM-4.6": thinking("<|user|>", field=CONTENT),
    "GLM-4.7-Flash": thinking("<|user|>", opened=True, field=CONTENT),
    "GLM-5.2": thinking("<|user|>", opened=True, field=CONTENT),
    "GigaChat3-10B-A1.8B": Expected("<|message_sep|>"),
    "GigaChat3.1-10B-A1.8B": Expected("<|message_sep|>"),
    "HuggingFaceTB-SmolLM3-3B": thinking(IM),
    "Kimi-K2-Instruct": Expected(IM),
    "Kimi-K2-Thinking": thinking(IM),
    "LFM2-8B-A1B": Expected(IM),
    "LFM2.5-Instruct": thinking(IM),
    "MiMo-VL": Expected(IM),
    "MiroThinker": thinking(IM, field=CONTENT),
    "Mistral-Small-3.2-24B-Instruct-2506": Expected("</s>"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": thinking(IM, opened=True, field=CONTENT),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": Expected(IM),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": Expected(IM),
    "Qwen-QwQ-32B": Expected(IM),
    "Qwen-Qwen2.5-7B-Instruct": Expected(IM),
    "Qwen-Qwen3-0.6B": thinking(IM, field=CONTENT),
    "Qwen3-Coder": Expected(IM),
    "Qwen3.5-4B": thinking(IM, opened=True, field=CONTENT),
    "Reka-Edge": thinking("<sep>"),
    "StepFun3.5-Flash": thinking(IM, opened=True, field=CONTENT),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": thinking(DEEPSEEK, opened=True),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": Expected(DEEPSEEK),
    "deepseek-ai-DeepSeek-V3.1": Expected(DEEPSEEK),
    "deepseek-ai-DeepSeek-V3.2": Expected(DEEPSEEK),
    "deepseek-ai-DeepSeek-V4": Expected(DEEPSEEK),
    "fireworks-ai-llama-3-firefunction-v2": LLAMA,
    "google-gemma-2-2b-it": Expected("<end_of_turn>", system=False),
    "google-gemma-4-31B-it": Expected("<turn|>", channels=True),
    "google-gemma-4-31B-it-interleaved": Expected("<turn|>", channels=True),
    "ibm-granite-granite-3.3-2B-Instruct": Expected("<|end_of_text|>"),
    "llama-cpp-deepseek-r1": thinking(DEEPSEEK, opened=True),
    "llama-cpp-rwkv-world": Expected(""),
    "meetkai-functionary-medium-v3.1": LLAMA,
    "meetkai-functionary-medium-v3.2": Expected("<|eot_id|>", recipient="".join(RECIPIENT)),
    "meta-llama-Llama-3.1-8B-Instruct": LLAMA,
    "meta-llama-Llama-3.2-3B-Instruct": LLAMA,
    "meta-llama-Llama-3.3-70B-Instruct": LLAMA,
    "microsoft-Phi-3.5-mini-instruct": Expected("<|end|>"),
    "mistralai-Ministral-3-14B-Reasoning-2512": Expected("</s>", "[THINK]", "[/THINK]", field=PART),
    "mistralai-Mistral-Nemo-Instruct-2407": Expected("</s>"),
    "moonshotai-Kimi-K2": Expected(IM),
    "openai-gpt-oss-120b": Expected("<|return|>", field="thinking", channels=True),
    "stepfun-ai-Step-3.5-Flash": thinking(IM, opened=True, field=CONTENT),
    "unsloth-Apriel-1.5": Expected("<|end|>", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    "unsloth-mistral-Devstral-Small-2507": Expected("</s>"),
}


THINKING = [file for file in FILES if EXPECTED.get(file.stem, LLAMA).closing]


def name(file: Path) -> str:
    return file.stem


@pytest.fixture(params=FILES, ids=name)
def file(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_every_published_template_has_its_row() -> None:
    if not FILES:
        pytest.skip("the folder with published templates is not beside this checkout")
    assert {file.stem for file in FILES} == EXPECTED.keys()


def tokenizer(source: str) -> Backend:
    """Bytes, the template's marks, and words of one token each."""
    backend = tiny.tokenizer([*NAMED.values(), *dict.fromkeys(MARK.findall(source))])
    visible = [text for text in VISIBLE if text.replace("/", "") in source.replace("/", "")]
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in visible])
    spelt = [part for parts in SPELT.values() for part in parts]
    backend.add_tokens([*THOUGHT, *RECIPIENT, *ANSWER, *INVENTED, *spelt, "\n\nUser:"])
    return backend


@dataclass(frozen=True)
class Case:
    session: Session
    expected: Expected
    source: str
    reasoning: bool
    """Whether the script begins with reasoning."""


def made(file: Path, folder: Path) -> Case:
    """A pair with the template of `file`, which writes a script in it."""
    source, expected = file.read_text(encoding="utf-8"), EXPECTED[file.stem]
    backend = tokenizer(source)
    ids = backend.get_vocab()
    opening, closing = (SPELT.get(mark, (mark,)) for mark in (expected.opening, expected.closing))
    reasoning = bool(expected.closing)
    before = [*(() if expected.opened else opening), *THOUGHT, *closing] if reasoning else []
    end = expected.end or "\n\nUser:"
    addressed = RECIPIENT if expected.recipient else ()
    script = [ids[text] for text in (*addressed, *before, *ANSWER, end, *INVENTED)]
    settings = {name: text for name, text in NAMED.items() if name != "eos_token" or expected.end == text}
    scripted(folder, backend, script, settings, source, max_position_embeddings=16384)
    return Case(load(PairSpec("m", "M", on_cpu(folder), context=16384), lambda _: None), expected, source, reasoning)


@pytest.fixture(scope="module")
def cases() -> dict[Path, Case]:
    """Those that a test has had: of each template one."""
    return {}


@pytest.fixture
def case(file: Path, cases: dict[Path, Case], tmp_path: Path) -> Case:
    if file not in cases:
        cases[file] = made(file, tmp_path / "model")
    return cases[file]


def said(events: Iterator[Event]) -> Finished:
    """The end of a reply, whose steps said the same."""
    seen = list(events)
    last = seen[-1]
    assert isinstance(last, Finished)
    pieces = [piece for event in seen if isinstance(event, Step) for piece in event.pieces]
    assert last.text.endswith("".join(piece.text for piece in pieces))
    return last


def request(**changes: Any) -> Generate:
    return replace(Generate(1, (ASKED,), limits=Limits(12)), **changes)


@pytest.mark.rotated(4)
def test_habits_of_published_templates(case: Case) -> None:
    found, expected = case.session.tokenizer.format, case.expected
    assert found.turn_end == expected.end
    assert (found.stop == "\n\nUser:") is (not expected.end)
    assert (found.opened.closing if found.opened else "") == (expected.closing if expected.opened else "")
    assert (found.channels is not None) is expected.channels
    assert found.in_header is (expected.end == "<|return|>")
    assert found.recipient == expected.recipient
    assert (found.reasoning, found.system) == (expected.field, expected.system)
    assert found.drops == (() if expected.system else ("system role",))


def test_what_published_templates_tell_apart_is_offered(case: Case, file: Path) -> None:
    assert case.session.tokenizer.format.choices == OFFERED.get(file.stem, ())


def test_a_reply_ends_with_its_turn_and_tells_reasoning_from_answer(case: Case) -> None:
    reply = said(case.session.generate(request()))
    assert (reply.reason, reply.thinking) == ("stop", False)
    assert reply.written.answer == "".join(ANSWER)
    assert reply.written.thoughts == ("".join(THOUGHT) if case.reasoning else "")


@pytest.mark.rotated(4, 2)
def test_the_next_prompt_is_what_transformers_renders(case: Case) -> None:
    reply = said(case.session.generate(request()))
    tokenizer = case.session.tokenizer
    again = Message("user", "And cats?")
    chat = (Message("system", "Be brief."), ASKED, reply.written.message, again)
    mine = tokenizer.backend.decode(tokenizer.prompt(chat), skip_special_tokens=False)
    habits, thoughts, answer = tokenizer.format, reply.written.thoughts, reply.written.answer
    if habits.content == "assignable":
        # transformers refuses this chat; see that nothing of it is lost.
        assert all(message.content in mine for message in chat)
        return
    system = [{"role": "system", "content": "Be brief."}]
    first = ASKED.content if habits.system else f"Be brief.\n\n{ASKED.content}"
    turn: dict[str, Any] = {"role": "assistant", "content": answer}
    if thoughts and habits.reasoning in FIELDS:
        turn[habits.reasoning] = thoughts
    elif thoughts and habits.reasoning == PART:
        turn["content"] = [{"type": "thinking", "thinking": thoughts}, {"type": "text", "text": answer}]
    turns = [{"role": "user", "content": first}, turn, {"role": "user", "content": again.content}]
    theirs, _ = render_jinja_template(
        [[*(system if habits.system else []), *turns]],
        chat_template=case.source,
        add_generation_prompt=True,
        **tokenizer.special | {"tools": None} | habits.arguments,
    )
    assert mine == theirs[0]
    assert all(word in mine for word in ("Be brief.", ASKED.content, answer, again.content))


@pytest.mark.rotated(4, 3)
def test_no_order_of_roles_is_refused_and_nothing_of_it_is_lost(case: Case) -> None:
    roles: tuple[Role, ...] = ("system", "user", "assistant")
    orders = (order for length in range(1, 5) for order in product(roles, repeat=length) if "user" in order)
    for order in (order for order in orders if order[-1] != "assistant"):
        chat = [Message(role, f"word{n}") for n, role in enumerate(order)]
        tokenizer = case.session.tokenizer
        prompt = tokenizer.backend.decode(tokenizer.prompt(chat), skip_special_tokens=False)
        assert all(message.content in prompt for message in chat), order


def test_a_stop_string_ends_the_answer(case: Case) -> None:
    reply = said(case.session.generate(request(limits=Limits(12, stop=(" cheese",)))))
    assert (reply.reason, reply.written.answer) == ("stop", "Mice eat")


@pytest.mark.rotated(4, 1)
@pytest.mark.parametrize("known", [True, False], ids=["tokens", "text"])
def test_a_reply_that_was_cut_goes_on_as_if_it_had_not_been(case: Case, known: bool) -> None:
    whole = said(case.session.generate(request()))
    if not known and "<thinking>" in case.source and case.expected.closing == "[BEGIN FINAL RESPONSE]":
        pytest.skip("this template names two kinds of marks, and a text does not say which were written")
    for length in range(1, len(whole.token_ids)):
        cut = said(case.session.generate(request(limits=Limits(length))))
        assert (cut.reason, cut.token_ids) == ("length", whole.token_ids[:length])
        assert whole.text.startswith(cut.text)
        if not known and not cut.text:
            continue  # there is nothing to go on from
        begun = cut.written if known else replace(cut.written, token_ids=())
        rest = said(case.session.generate(request(begun=begun)))
        if known:
            assert (*cut.token_ids, *rest.token_ids) == whole.token_ids
        assert rest.written.answer.split() == whole.written.answer.split()
        assert rest.written.thoughts.split() == whole.written.thoughts.split()


@pytest.mark.parametrize("file", THINKING, ids=name)
def test_a_reply_cut_while_it_thinks_has_no_answer(case: Case) -> None:
    closing = SPELT.get(case.expected.closing, (case.expected.closing,))
    whole = said(case.session.generate(request()))
    opening = len(whole.token_ids) - len((*THOUGHT, *closing, *ANSWER, "end"))
    cut = said(case.session.generate(request(limits=Limits(opening + 1))))
    assert (cut.written.thoughts, cut.written.answer, cut.thinking) == (THOUGHT[0], "", True)


def test_a_prefill_begins_the_answer(case: Case) -> None:
    reply = said(case.session.generate(request(prefill="Well")))
    assert reply.text.startswith("Well")
    prompt = case.session.tokenizer.prompt([ASKED], "Well")
    text = case.session.tokenizer.backend.decode(prompt, skip_special_tokens=False)
    assert text.endswith("Well")
    if case.expected.opened:
        assert text.rpartition(case.expected.closing)[2].strip() == "Well"


@pytest.mark.parametrize("file", THINKING, ids=name)
def test_what_was_kept_with_marks_in_its_text_is_sent_as_the_template_wants(case: Case) -> None:
    """Older chats have the reasoning in the text, imported ones too."""
    marks = case.session.tokenizer.format.marks[0]
    old = Message("assistant", f"{marks.opening}\nPonder\n{marks.closing}\n\nMice.")
    new = Written.of([("Ponder", True), ("Mice.", False)]).message
    prompts = [case.session.tokenizer.prompt((ASKED, message, Message("user", "And cats?"))) for message in (old, new)]
    assert prompts[0] == prompts[1]

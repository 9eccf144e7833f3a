"""The generator is deterministic, varied, and keeps its held-out share apart."""

import re
from random import Random

import pytest

from training.corpus import public
from training.corpus.code_bank import FUNCTIONS
from training.corpus.copying import repeat
from training.corpus.mixture import MAKERS, dialogues, fingerprint, held_out


@pytest.fixture(autouse=True)
def _no_public_texts(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CORPUS", str(tmp_path))
    for function in (public.stories, public.chats, public.sentences):
        function.cache_clear()
    yield
    for function in (public.stories, public.chats, public.sentences):
        function.cache_clear()


def test_same_seed_gives_the_same_dialogues():
    assert list(dialogues(4, 200)) == list(dialogues(4, 200))
    assert list(dialogues(4, 50)) != list(dialogues(5, 50))


def test_nearly_all_dialogues_differ():
    rng = Random(9)
    makers = list(MAKERS.values())
    texts = [str(makers[index % len(makers)](rng)) for index in range(2000)]
    assert len(set(texts)) > 0.95 * len(texts)
    kept = [str(dialogue.messages) for dialogue in dialogues(9, 2000)]
    assert len(set(kept)) > 0.99 * len(kept)


def test_held_out_prompts_never_occur_in_training():
    def prompts(count: int, *, evaluation: bool) -> set[str]:
        found = dialogues(6, count, evaluation=evaluation)
        return {fingerprint([m for m in dialogue.messages if m["role"] == "user"][:1]) for dialogue in found}

    assert all(held_out(dialogue.messages) for dialogue in dialogues(6, 100, evaluation=True))
    assert not any(held_out(dialogue.messages) for dialogue in dialogues(6, 1000))
    assert len(prompts(100, evaluation=True) & prompts(2000, evaluation=False)) < 10


def test_every_dialogue_alternates_and_says_something():
    for dialogue in dialogues(8, 1000):
        roles = [message["role"] for message in dialogue.messages if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(message["content"].strip() for message in dialogue.messages)
        assert "{" not in re.sub(r"```.*?```", "", dialogue.messages[-1]["content"]) or dialogue.category in (
            "code",
            "copy",
            "edit",
        )


def test_a_repeated_text_is_in_the_prompt():
    for seed in range(50):
        messages = repeat(Random(seed))
        assert messages[1]["content"] in messages[0]["content"]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_functions_compile_and_examples_hold(function):
    space: dict[str, object] = {}
    exec(compile(function.source, function.name, "exec"), space)
    call, _, wanted = function.example.partition(" returns ")
    try:
        value = eval(wanted, {})
    except (SyntaxError, NameError):
        return
    if " or " not in wanted:
        assert eval(call, space) == value

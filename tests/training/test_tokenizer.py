"""The shipped tokenizer keeps any text and follows its template."""

import json
from pathlib import Path
from random import Random

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specchat import demo
from training.tokenizer import SPECIAL, encode, encode_text, load

FOLDER = Path(demo.__file__).parent if getattr(demo, "__file__", None) else Path(next(iter(demo.__path__)))


@pytest.fixture(scope="module")
def tokenizer():
    return load(FOLDER / "target" / "tokenizer.json")


def test_any_text_comes_back(tokenizer):
    rng = Random(1)
    for _ in range(300):
        text = "".join(
            chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xD7FF), rng.randrange(0x1F300, 0x1FAFF))))
            for _ in range(20)
        )
        assert tokenizer.decode(encode_text(tokenizer, text), skip_special_tokens=False) == text


def test_names_of_special_tokens_are_plain_text_in_a_message(tokenizer):
    text = "say <|end|> and <|assistant|> now"
    tokens = encode_text(tokenizer, text)
    assert not set(tokens) & {tokenizer.token_to_id(name) for name in SPECIAL}
    assert tokenizer.decode(tokens) == text


def test_size_digits_and_ids(tokenizer):
    assert tokenizer.get_vocab_size() == 3072
    assert [tokenizer.token_to_id(name) for name in SPECIAL] == list(range(6))
    assert len(tokenizer.encode("12345").ids) == 5


def test_template_gives_the_tokens_of_training(tokenizer):
    template = json.loads((FOLDER / "target" / "tokenizer_config.json").read_text("utf-8"))["chat_template"]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Bye"},
    ]
    text = ImmutableSandboxedEnvironment().from_string(template).render(messages=messages, add_generation_prompt=True)
    assert (
        text
        == "<|bos|><|system|>Be kind.<|end|><|user|>Hello!<|end|><|assistant|>Hi.<|end|><|user|>Bye<|end|><|assistant|>"
    )
    assert tokenizer.encode(text, add_special_tokens=False).ids == encode(tokenizer, messages, reply=True)[0]


def test_both_models_share_the_tokenizer():
    assert (FOLDER / "target" / "tokenizer.json").read_bytes() == (FOLDER / "draft" / "tokenizer.json").read_bytes()

"""Pictures to servers: sent as they are where the server reads them or does not say, refused before where it does."""

import json
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from specchat.engine.pictures.decode import MOST_BYTES
from specchat.engine.protocol.events import Counted, Failed, Finished
from specchat.engine.protocol.options import PLACE, Limits, Message, Picture
from specchat.engine.protocol.requests import Count
from specchat.tui.screens.about import about
from tests.drawn import drawn
from tests.remote.conftest import Chatting, text_of
from tests.remote.server import CHAT, PAGES, Call, serving
from tests.remote.test_steps import CHAT_KEY, LLAMA
from tests.remote.test_trouble import GOOD, error, refused

FILES = {"png": drawn(), "jpeg": drawn("JPEG"), "webp": drawn("WEBP"), "gif": drawn("GIF"), "bmp": drawn("BMP")}
PNG = Picture(FILES["png"])
ASKED = (Message("user", "What?", pictures=(PNG,)),)
PROPS = json.loads((PAGES / "llamacpp-draft-props.json").read_text())
MODELS = json.loads((PAGES / "llamacpp-draft-models.json").read_text())
SHOWN = "api__v0__models__m"


def url(media: str) -> dict[str, Any]:
    return {
        "type": "image_url",
        "image_url": {"url": f"data:image/{media};base64,{b64encode(FILES[media]).decode()}"},
    }


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def good(call: Call) -> None:
    call.send(GOOD)


def listed(**about: Any) -> dict[str, Any]:
    return {"v1__models": {"data": [{"id": "m", **about}]}, CHAT_KEY: good}


@pytest.mark.parametrize("media", FILES)
def test_the_file_goes_as_it_is(media: str, chatting: Chatting) -> None:
    with serving(**listed()) as one:
        chatting.load(one.url)
        chatting.ask(messages=(Message("user", "What?", pictures=(Picture(FILES[media]),)),))
        assert one.of(CHAT)[0].body["messages"] == [{"role": "user", "content": [url(media), text("What?")]}]


def test_each_stands_where_it_stood(chatting: Chatting) -> None:
    both = (PNG, Picture(FILES["gif"]))
    said = (
        Message("system", "Look."),
        Message("user", f"One {PLACE} and {PLACE}", pictures=both),
        Message("assistant", f"A fox{PLACE}."),
        Message("user", f"Stray {PLACE}", pictures=both),
        Message("user", "", pictures=(PNG,)),
    )
    with serving(**listed()) as one:
        chatting.load(one.url)
        chatting.ask(messages=said)
        contents = [message["content"] for message in one.of(CHAT)[0].body["messages"]]
    assert contents == [
        "Look.",
        [text("One "), url("png"), text(" and "), url("gif")],
        f"A fox{PLACE}.",
        [url("png"), url("gif"), text(f"Stray {PLACE}")],
        [url("png")],
    ]


SAID: dict[str, tuple[dict[str, Any], bool | None]] = {
    "llama.cpp": ({**LLAMA, "props": {**PROPS, "modalities": {"vision": True}}}, True),
    "llama.cpp, recorded": (LLAMA, False),
    "OpenRouter": (listed(architecture={"input_modalities": ["text", "image"]}), True),
    "Mistral": (listed(capabilities={"completion_chat": True, "vision": False}), False),
    "specchat": ({**listed(owned_by="specchat"), "props": {"modalities": {"vision": False}}}, False),
    "SGLang": ({**listed(owned_by="sglang"), "model_info": {"has_image_understanding": True}}, True),
    "SGLang of old": ({**listed(owned_by="sglang"), "get_model_info": {"has_image_understanding": False}}, False),
    "Ollama": ({**listed(owned_by="library"), "api__show": {"capabilities": ["completion", "vision"]}}, True),
    "Ollama's others": ({**listed(owned_by="library"), "api__show": {"capabilities": ["completion"]}}, False),
    "LM Studio": ({**listed(), SHOWN: {"id": "m", "type": "vlm", "capabilities": ["tool_use"]}}, True),
    "LM Studio's others": ({**listed(), SHOWN: {"id": "m", "type": "llm"}}, False),
    "vLLM": (listed(owned_by="vllm"), None),
    "OpenAI": (listed(owned_by="system"), None),
    "lies": (listed(type=[], capabilities="vision", architecture=[{}], modalities={"vision": "no"}), None),
}


@pytest.mark.parametrize("name", SAID)
def test_the_server_is_asked_whether_its_model_reads_them(name: str, chatting: Chatting) -> None:
    pages, sees = SAID[name]
    pages = {**pages, "slots": [], CHAT_KEY: good}
    if "data" not in pages.get("v1__models", "data"):
        pages["v1__models"] = {"data": [{**MODELS["data"][0], "architecture": None}]}
    with serving(**pages) as one:
        info = chatting.load(one.url)
        assert (info.sees, info.server.tells_sight) == (sees is not False, sees is not None)
        assert dict(about(info))["pictures"].startswith(
            {True: "read,", False: "not read", None: "sent; the server does not say"}[sees]
        )
        last = chatting.ask(messages=ASKED)[-1]
        if sees is not False:
            assert isinstance(last, Finished)
            return
        assert isinstance(last, Failed)
        assert (last.kind, one.of(CHAT)) == ("request", [])
        assert last.message.endswith(f"at {one.url} reads no pictures. Leave them out, or choose another model.")
        assert text_of(chatting.ask(2)) == "Good."


def test_a_refusal_is_a_sentence_and_the_chat_goes_on(chatting: Chatting) -> None:
    no = refused("500 Internal Server Error", error("image input is not supported\x1b[31m"))

    def answer(call: Call) -> None:
        (good if isinstance(call.body["messages"][-1]["content"], str) else no)(call)

    with serving(**{**listed(), CHAT_KEY: answer}) as one:
        chatting.load(one.url)
        last = chatting.ask(messages=ASKED)[-1]
        assert isinstance(last, Failed)
        assert last.message == (
            f"{one.url} answered with error 500: image input is not supported␛[31m. "
            "If that is for the pictures, leave them out, or choose another model."
        )
        assert text_of(chatting.ask(2)) == "Good."


@pytest.mark.parametrize(
    ("data", "words"),
    [(FILES["png"] + bytes(MOST_BYTES), "has more than 20 MiB"), (b"<svg/>", "is of a format that is not sent")],
    ids=["large", "unknown"],
)
def test_what_no_server_takes_is_not_sent(data: bytes, words: str, chatting: Chatting) -> None:
    with serving(**listed()) as one:
        chatting.load(one.url)
        last = chatting.ask(messages=(Message("user", "What?", pictures=(Picture(data),)),))[-1]
        assert isinstance(last, Failed)
        assert (last.kind, words in last.message, one.of(CHAT)) == ("request", True, [])


def test_they_are_sent_once_and_not_to_be_counted(chatting: Chatting) -> None:
    pages = {**listed(owned_by="vllm", max_model_len=64), "tokenize": {"count": 9}}
    with serving(**pages) as one:
        chatting.load(one.url)
        chatting.engine.send(Count(7, ASKED))
        counted = chatting.until(Counted, Failed)[-1]
        assert isinstance(counted, Failed)
        assert isinstance(chatting.ask(messages=ASKED, limits=Limits(8, context="drop-oldest"))[-1], Finished)
        assert one.of("/tokenize") == []
        chatting.engine.send(Count(8, (replace(ASKED[0], pictures=()),)))
        assert isinstance(chatting.until(Counted, Failed)[-1], Counted)

"""Pictures of OpenAI's and Anthropic's clients reach a model that reads them; none is fetched."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from specchat.engine.protocol.options import PLACE, Message, Picture
from tests.fake import INFO, FakeEngine
from tests.serve.conftest import serving
from tests.serve.test_clients import requested
from tests.serve.test_requests_of_clients import post

DATA = base64.b64encode(b"picture").decode()
URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
PATHS = {"chat/completions": URL, "messages": BLOCK}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(["Hello."], info=replace(INFO, sees=True))


def body(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 9}


@pytest.mark.parametrize("path", PATHS)
async def test_each_stands_where_it_stood(path: str, engine: FakeEngine) -> None:
    part, picture = PATHS[path], Picture(b"picture")
    async with serving(engine) as server:
        assert (await post(server, path, body([part, text("What?"), text("Say."), part]))).status_code == 200
        said = Message("user", f"{PLACE}What?\nSay.{PLACE}", pictures=(picture, picture))
        assert requested(engine).messages == (said,)
        assert (await post(server, path, body([text(f"a{PLACE}b"), part]))).status_code == 200
        assert requested(engine).messages == (Message("user", f"ab{PLACE}", pictures=(picture,)),)
        assert (await post(server, path, body("plain"))).status_code == 200
        assert requested(engine).messages == (Message("user", "plain"),)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a page": ("chat/completions", {**URL, "image_url": {"url": "https://example.com/a.png"}}, "none is fetched"),
    "a file": ("chat/completions", {**URL, "image_url": {"url": "file:///etc/passwd"}}, "none is fetched"),
    "not base64": ("chat/completions", {**URL, "image_url": {"url": "data:image/svg+xml,<svg/>"}}, "none is fetched"),
    "nothing": ("chat/completions", {"type": "image_url"}, "none is fetched"),
    "damaged": ("chat/completions", {**URL, "image_url": {"url": "data:image/png;base64,@@"}}, "base64 is damaged"),
    "Anthropic's page": (
        "messages",
        {"type": "image", "source": {"type": "url", "url": "http://a/b"}},
        "none is fetched",
    ),
    "another kind": ("messages", {"type": "document", "source": {}}, "parts of type document cannot be read"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_picture_is_refused(name: str, engine: FakeEngine) -> None:
    path, part, words = REFUSED[name]
    async with serving(engine) as server:
        found = await post(server, path, body([text("What?"), part]))
        assert (found.status_code, words in found.text) == (400, True)

"""Pictures of all clients reach a model that reads them; none is fetched."""

import base64
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest

from specchat.engine.protocol.options import PLACE, Message, Picture
from tests.fake import INFO, FakeEngine
from tests.serve.conftest import Server, claude, serving
from tests.serve.test_clients import requested
from tests.serve.test_requests_of_clients import post

DATA = base64.b64encode(b"picture").decode()
URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
ITEM = {"type": "input_image", "detail": "low", "image_url": f"data:image/png;base64,{DATA}"}
PATHS = {"chat/completions": URL, "messages": BLOCK, "responses": ITEM}
IMAGE = Picture(b"picture")


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(["Hello."], info=replace(INFO, sees=True))


def body(content: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": content}]
    return {"messages": said, "input": said, "max_tokens": 9}


async def native(server: Server, path: str, **body: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as client:
        return await client.post(f"{server.url}/api/{path}", json={"stream": False, **body})


@pytest.mark.parametrize("path", PATHS)
async def test_each_stands_where_it_stood(path: str, engine: FakeEngine) -> None:
    part = PATHS[path]
    async with serving(engine) as server:
        assert (await post(server, path, body([part, text("What?"), text("Say."), part]))).status_code == 200
        said = Message("user", f"{PLACE}What?\nSay.{PLACE}", pictures=(IMAGE, IMAGE))
        assert requested(engine).messages == (said,)
        assert (await post(server, path, body([text(f"a{PLACE}b"), part]))).status_code == 200
        assert requested(engine).messages == (Message("user", f"ab{PLACE}", pictures=(IMAGE,)),)
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
    "a response's page": ("responses", {**ITEM, "image_url": "https://example.com/a.png"}, "none is fetched"),
    "a response's file": ("responses", {"type": "input_image", "file_id": "file-1"}, "none is fetched"),
    "another kind": ("messages", {"type": "document", "source": {}}, "parts of type document cannot be read"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_picture_is_refused(name: str, engine: FakeEngine) -> None:
    path, part, words = REFUSED[name]
    async with serving(engine) as server:
        found = await post(server, path, body([text("What?"), part]))
        assert (found.status_code, words in found.text) == (400, True)


async def test_a_response_goes_on_and_is_compacted_with_its_pictures(engine: FakeEngine) -> None:
    asked: Any = [{"role": "user", "content": [{"type": "input_text", "text": "What?"}, ITEM]}]
    first = Message("user", f"What?{PLACE}", pictures=(IMAGE,))
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        found = await client.responses.create(model="demo", input=asked)
        assert requested(engine).messages == (first,)
        await client.responses.create(model="demo", input="And?", previous_response_id=found.id)
        assert requested(engine).messages[0] == first
        compacted = await client.responses.compact(model="demo", input=asked)
        kept: list[Any] = [one.model_dump(exclude_none=True, warnings=False) for one in compacted.output]
        await client.responses.create(model="demo", input=kept)
        assert requested(engine).messages[0] == first


async def test_ollamas_stand_before_the_text_of_their_message(engine: FakeEngine) -> None:
    shown = {"role": "user", "content": "What?", "images": [DATA, DATA]}
    first = Message("user", f"{PLACE}{PLACE}What?", pictures=(IMAGE, IMAGE))
    said = {"role": "assistant", "content": "A fox.", "images": [DATA]}
    async with serving(engine) as server:
        chat = [shown, said, {"role": "user", "images": [DATA]}]
        assert (await native(server, "chat", messages=chat)).status_code == 200
        assert requested(engine).messages == (
            first,
            Message("assistant", "[image left out: it cannot be read here]\nA fox."),
            Message("user", PLACE, pictures=(IMAGE,)),
        )
        assert (await native(server, "generate", prompt="What?", images=[DATA], system="Look.")).status_code == 200
        assert requested(engine).messages == (
            Message("system", "Look."),
            Message("user", f"{PLACE}What?", pictures=(IMAGE,)),
        )
        for wrong, words in (
            ({"prompt": "a", "images": ["@"]}, "images: a picture's base64 is damaged."),
            ({"prompt": "a", "images": ["https://example.com/a.png"]}, "images: a picture's base64 is damaged."),
            ({"prompt": "a", "images": [7]}, "images: pictures are taken as base64"),
            ({"prompt": "a", "images": [DATA], "raw": True}, "images: a raw prompt"),
            ({"prompt": "a", "images": [DATA], "suffix": "b"}, "images: a raw prompt"),
        ):
            found = await native(server, "generate", **wrong)
            assert (found.status_code, words in found.json()["error"]) == (400, True)


@pytest.mark.parametrize("sees", [True, False])
async def test_clients_learn_whether_the_pair_reads_pictures(sees: bool) -> None:
    engine = FakeEngine(info=replace(INFO, sees=sees))
    async with serving(engine) as server, claude(server) as client, httpx2.AsyncClient() as plain:
        assert ("vision" in (await native(server, "show")).json()["capabilities"]) is sees
        known = await client.models.retrieve("demo")
        assert known.capabilities is not None
        assert known.capabilities.image_input.supported is sees
        (listed,) = (await plain.get(f"{server.url}/v1/models")).json()["data"]
        assert ("image" in listed["architecture"]["input_modalities"]) is sees

"""Servers that refuse, stall, break off or send nonsense: a sentence, the text so far, and the next reply works."""

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.protocol.events import AwaitingServer, Counted, Failed, Finished, Loaded, Loading, Step
from specchat.engine.protocol.pair import Server
from specchat.engine.protocol.requests import Cancel, Count, Generate, Load
from specchat.remote import connection, event_stream, reply
from tests.remote.conftest import PATIENCE_S, QUESTION, Chatting, spec, text_of
from tests.remote.server import CHAT, Answer, Call, delta, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
MODELS: Mapping[str, Any] = {"v1__models": {"data": [{"id": "m"}]}}
GOOD = delta("Good.") + delta("", "stop") + "data: [DONE]\n\n"


def refused(status: str, body: str, kind: str = "application/json") -> Answer:
    return lambda call: call.send(body, status, f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n")


def error(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error"}})


REFUSALS = {
    "wrong key": (
        refused("401 Unauthorized", error("Invalid API Key")),
        "config",
        "{url} refuses requests without a key; name its variable as key_env (401: Invalid API Key).",
    ),
    "unknown model": (
        refused("404 Not Found", error("no model m")),
        "model",
        "{url} has no such page or model (404: no model m). Check url and model.",
    ),
    "unknown path": (
        refused("404 Not Found", '{"detail":"Not Found"}'),
        "model",
        "{url} has no such page or model (404: Not Found). Check url and model.",
    ),
    "long prompt": (
        refused("400 Bad Request", error("request exceeds the available context size")),
        "context",
        "The chat does not fit the server's context: request exceeds the available context size",
    ),
    "bad request": (
        refused("400 Bad Request", error("\x1b[31mtop_p\nmust be small")),
        "request",
        "{url} answered with error 400: ␛[31mtop_p must be small.",
    ),
    "a page of a proxy": (
        refused("502 Bad Gateway", "<html><h1>502</h1>", "text/html"),
        "server",
        "{url} answered with error 502.",
    ),
    "a web page": (
        refused("200 OK", "<!doctype html><html>", "text/html"),
        "server",
        "{url}/v1/chat/completions answered with no stream of events. Check url in models.toml.",
    ),
    "no HTTP": (
        lambda call: call.more("SSH-2.0-OpenSSH_9.2\r\n"),
        "server",
        "{url} closed the connection in the middle of its answer.",
    ),
    "closed at once": (lambda _: None, "server", "{url} closed the connection in the middle of its answer."),
    "an empty stream": (
        lambda call: call.send(""),
        "server",
        "{url} ended its answer before the reply was complete.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_a_sentence_and_the_next_reply_works(name: str, chatting: Chatting) -> None:
    answer, kind, words = REFUSALS[name]
    with serving(**MODELS, **{CHAT_KEY: answer}) as one:
        chatting.load(one.url)
        events = chatting.ask()
        assert events == [Failed(1, kind, words.format(url=one.url))]  # type: ignore[arg-type]
        one.pages[CHAT] = lambda call: call.send(GOOD)
        assert text_of(chatting.ask(2)) == "Good."


def ends_early(call: Call) -> None:
    call.send(delta("Half a"))


def cut_chunk(call: Call) -> None:
    call.send("", headers="Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n")
    part = delta("Half a").encode()
    call.more(b"%x\r\n%s\r\nff\r\ndata" % (len(part), part))


def says_error(call: Call) -> None:
    call.send(delta("Half a") + f"data: {error('CUDA out of memory')}\n\n")


def sends_list(call: Call) -> None:
    call.send(delta("Half a") + "data: [1, 2]\n\n")


def sends_nested(call: Call) -> None:
    call.send(delta("Half a") + f"data: {'[' * 100_000}\n\n")


def long_line(call: Call) -> None:
    call.send(delta("Half a") + "data: ")
    for _ in range(1000):
        call.more(b"x" * 4096)


def floods(call: Call) -> None:
    call.send(delta("Half a"))
    while True:  # until the client closes the connection
        call.link.sendall((delta("x" * 1000) * 100).encode())


BREAKS = {
    ends_early: "{url} ended its answer before the reply was complete.",
    cut_chunk: "{url} closed the connection in the middle of its answer.",
    says_error: "{url} ended the reply with an error: CUDA out of memory.",
    sends_list: "{url} sent an event that is no JSON object: the reply ends here.",
    sends_nested: "{url} sent an event that is no JSON object: the reply ends here.",
    long_line: "{url} sent a line of more than 1 MiB: the reply ends here.",
    floods: "{url} wrote more than 1,000,000 characters.",
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_the_text_so_far_stays_and_the_next_reply_works(
    broken: Answer, chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(reply, "MAX_CHARS", 1_000_000)
    with serving(**MODELS, **{CHAT_KEY: broken}) as one:
        chatting.load(one.url)
        events = chatting.ask()
        assert text_of(events).startswith("Half a")
        assert events[-1] == Failed(1, "server", BREAKS[broken].format(url=one.url))
        one.pages[CHAT] = lambda call: call.send(GOOD)
        assert text_of(chatting.ask(2)) == "Good."


def test_a_server_that_falls_silent_is_left(chatting: Chatting) -> None:
    gone: list[bool] = []
    with serving(**MODELS, **{CHAT_KEY: lambda call: closes(call, gone)}) as one:
        chatting.load(one.url)
        chatting.send()
        events = [*chatting.until(Step), *chatting.after_silence()]
        assert text_of(events).startswith("One")
        assert events[-1] == Failed(1, "server", f"{one.url} has sent nothing for {PATIENCE_S:g} s.")
        one.pages[CHAT] = lambda call: call.send(GOOD)
        assert text_of(chatting.ask(2)) == "Good."
    assert gone == [True]


ODD = [
    b'data: {"choices":[{"delta":{"content":"caf\xc3"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
    b": a comment\n\nevent: ping\nid: 3\nretry: 1\n\n",
    b'data: {"choices":{"0":1},"usage":[1],"timings":"x"}\n\n',
    b'data: {"choices":[{"delta":{"content":7},"finish_reason":5}],"usage":{"prompt_tokens":-1}}\n\n',
    b'data: {"choices":[null],"timings":{"predicted_n":1e300,"draft_n":"4","predicted_ms":NaN}}\r\n\r\n',
    b'data: {"timings":{"predicted_n":2,"predicted_ms":1'
    + b"0" * 400
    + b'},"metrics":{"generation_time_ms":1e999}}\n\n',
    b'data: {"choices":[{"delta":[]}],"timings":{"predicted_n":true,"predicted_ms":Infinity,"draft_n":9}}\n\n',
    b'data:{"choices":[{"delta":{"content":" end"}}],"usage":{"completion_tokens":99999999999999999}}\n\n',
]


@pytest.mark.parametrize("kind", ["openai", "llama.cpp", "vllm", "sglang", "trtllm", "specchat"])
def test_odd_events_are_taken_as_far_as_they_make_sense(kind: str, chatting: Chatting) -> None:
    settings: Mapping[str, Any] = {"props": {"default_generation_settings": 5}, "slots": {"a": 1}, "server_info": []}

    def odd(call: Call) -> None:
        call.send(b"")
        stream = b"".join([*ODD, delta("", "stop").encode()])
        for at in range(0, len(stream), 7):
            call.more(stream[at : at + 7])

    with serving(**MODELS, **settings, **{CHAT_KEY: odd}) as one:
        chatting.load(one.url, kind=kind)
        event = chatting.ask()[-1]
    assert isinstance(event, Finished)
    assert event.text == "caf\ufffd\ufffd end"


def closes(call: Call, gone: list[bool]) -> None:
    call.send(delta("One") + delta(" two"))
    gone.append(call.left())


def test_stopping_closes_the_connection_at_once(chatting: Chatting) -> None:
    gone: list[bool] = []
    with serving(**MODELS, **{CHAT_KEY: lambda call: closes(call, gone)}) as one:
        chatting.load(one.url)
        chatting.send()
        chatting.until(Step)
        chatting.engine.send(Cancel(1))
        event = chatting.until(Finished)[-1]
        assert isinstance(event, Finished)
        assert (event.reason, event.text) == ("cancelled", "One two"[: len(event.text)])
        one.pages[CHAT] = lambda call: call.send(GOOD)
        assert text_of(chatting.ask(2)) == "Good."
    assert gone == [True]


def test_a_reply_that_waits_is_cancelled_before_it_is_asked_for(chatting: Chatting) -> None:
    gone: list[bool] = []
    with serving(**MODELS, **{CHAT_KEY: lambda call: closes(call, gone)}) as one:
        chatting.load(one.url)
        chatting.send(1)
        chatting.send(2)
        chatting.until(Step)
        chatting.engine.send(Cancel(2))
        chatting.engine.send(Cancel(1))
        events = [chatting.until(Finished)[-1] for _ in range(2)]
        assert [(event.id, event.reason) for event in events if isinstance(event, Finished)] == [
            (1, "cancelled"),
            (2, "cancelled"),
        ]
        assert len(one.of(CHAT)) == 1


def test_a_request_that_is_cancelled_before_it_is_begun_is_answered(chatting: Chatting) -> None:
    """The cancellation comes between the making of its task and the task's first step."""
    with serving(**MODELS) as one:
        chatting.load(one.url)
        worker = chatting.engine._thread
        assert worker is not None

        def both() -> None:
            worker._take(Generate(1, QUESTION))
            worker._loop.call_soon(worker._take, Cancel(1))

        worker._loop.call_soon_threadsafe(both)
        event = chatting.until(Finished, Failed)[-1]
        assert isinstance(event, Finished)
        assert (event.id, event.reason) == (1, "cancelled")
        assert one.of(CHAT) == []


def test_another_pair_ends_the_reply_that_runs(chatting: Chatting) -> None:
    gone: list[bool] = []
    with serving(**MODELS, **{CHAT_KEY: lambda call: closes(call, gone)}) as one:
        chatting.load(one.url)
        chatting.send()
        chatting.until(Step)
        assert chatting.load(one.url).id == "box"
    assert gone == [True]


def busy_first(times: int, status: str, headers: str) -> Callable[[Call], None]:
    left = [times]

    def answer(call: Call) -> None:
        if left[0]:
            left[0] -= 1
            call.json({"error": {"message": "Loading model"}}, status, headers)
        else:
            call.send(GOOD)

    return answer


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_a_busy_server_is_asked_again_and_the_wait_is_said(status: str, chatting: Chatting) -> None:
    answer = busy_first(2, status, "Retry-After: 0\r\n")
    with serving(**MODELS, **{CHAT_KEY: answer}) as one:
        chatting.load(one.url)
        events = chatting.ask()
        said = [event.why for event in events if isinstance(event, AwaitingServer)]
        assert said == [f"{one.url} is busy ({status[:3]}): trying again in 1 s"] * 2
    assert text_of(events) == "Good."


def test_a_server_that_is_loading_its_model_is_waited_for(chatting: Chatting) -> None:
    def loading(call: Call) -> None:
        one.pages["/v1/models"] = MODELS["v1__models"]
        call.json({"error": {"message": "Loading model"}}, "503 Service Unavailable", "Retry-After: 0\r\n")

    with serving(v1__models=loading) as one:
        chatting.engine.send(Load(spec(one.url)))
        said = [event.what for event in chatting.until(Loaded, Failed) if isinstance(event, Loading)]
    assert said == [f"asking {one.url}", f"{one.url} is busy (503): trying again in 1 s"]


@pytest.mark.parametrize(
    ("url", "warned"), [("http://box:8080", True), ("https://box", False), ("http://127.0.0.1:8080", False)]
)
def test_a_key_that_can_be_read_on_the_way_is_warned_of(
    url: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", "secret")
    assert connection.ServerConnection(Server(url, key_env="BOX_KEY")).reveals_key == warned
    assert not connection.ServerConnection(Server(url)).reveals_key


def test_a_server_that_stays_busy_is_given_up(chatting: Chatting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_WAIT_S", 0.25)
    answer = busy_first(99, "503 Service Unavailable", "Retry-After: 0\r\n")
    with serving(**MODELS, **{CHAT_KEY: answer}) as one:
        chatting.load(one.url)
        event = chatting.ask()[-1]
        assert event == Failed(1, "server", f"{one.url} is busy (503: Loading model). Try again later.")
        assert len(one.of(CHAT)) == 3


def test_a_wait_longer_than_a_minute_is_not_begun(chatting: Chatting) -> None:
    answer = busy_first(1, "429 Too Many Requests", "Retry-After: 3600\r\n")
    with serving(**MODELS, **{CHAT_KEY: answer}) as one:
        chatting.load(one.url)
        event = chatting.ask()[-1]
    assert isinstance(event, Failed)
    assert "is busy (429" in event.message


def moved(place: str) -> Answer:
    return lambda call: call.send("", "307 Temporary Redirect", f"Location: {place}\r\nContent-Length: 0\r\n")


def test_the_key_follows_no_redirect_to_another_host(chatting: Chatting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", "secret")
    with serving() as other, serving(**MODELS) as one:
        one.pages[CHAT] = moved(f"{other.url}{CHAT}")
        chatting.load(one.url, key_env="BOX_KEY")
        event = chatting.ask()[-1]
        assert event == Failed(
            1,
            "server",
            f"{one.url} redirects to {other.url}, to which nothing was sent. If you trust it, set it as the url.",
        )
        assert other.calls == []
        assert {call.headers["authorization"] for call in one.calls} == {"Bearer secret"}


def test_a_redirect_within_the_server_is_followed_but_not_without_end(chatting: Chatting) -> None:
    with serving(**MODELS, v2__chat=lambda call: call.send(GOOD)) as one:
        one.pages[CHAT] = moved("/v2/chat")
        chatting.load(f"{one.url}/v1/")
        assert text_of(chatting.ask()) == "Good."
        one.pages[CHAT] = moved(CHAT)
        event = chatting.ask(2)[-1]
        assert event == Failed(2, "server", f"{one.url} redirects without end. Check url in models.toml.")


def test_a_key_that_is_not_there_is_told_and_never_shown(chatting: Chatting, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(**MODELS) as one:
        event = chatting.tried(one.url, key_env="NO_SUCH_KEY")
        assert event == Failed(None, "config", "The environment variable NO_SUCH_KEY, named by key_env, is not set.")
        monkeypatch.setenv("BOX_KEY", "se\ncret")
        event = chatting.tried(one.url, key_env="BOX_KEY")
        assert event == Failed(None, "config", "The environment variable BOX_KEY, named by key_env, holds no key.")
        assert one.calls == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (refused("401 Unauthorized", error("Invalid API Key")), "refuses requests without a key"),
        (refused("200 OK", "<html>", "text/html"), "answered with a web page. Check url"),
        (refused("200 OK", '{"data": []}'), "lists no models. Name one as model"),
        (refused("200 OK", '{"data": [5, {"id": 3}]}'), "lists no models. Name one as model"),
        (refused("200 OK", "[" * 50_000), "answered with no JSON. Check url"),
        (None, "has no such page or model"),
    ],
)
def test_a_server_that_cannot_be_loaded_is_a_sentence(page: Any, words: str, chatting: Chatting) -> None:
    with serving(v1__models=page) as one:
        event = chatting.tried(one.url)
        assert isinstance(event, Failed)
        assert event.id is None
        assert words in event.message
        one.pages["/v1/models"] = MODELS["v1__models"]
        assert isinstance(chatting.tried(one.url), Loaded)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes a certificate")
def test_a_certificate_that_nobody_trusts_is_refused(chatting: Chatting, tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(context, **MODELS) as one:
        event = chatting.tried(one.url)
        assert isinstance(event, Failed)
        assert event.message.endswith("Its certificate is not trusted.")
        assert one.calls == []


def test_a_server_that_is_not_there_is_a_sentence(chatting: Chatting) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # so that nobody else listens there
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        event = chatting.tried(url)
    assert isinstance(event, Failed)
    assert event.kind == "server"
    assert event.message.startswith(f"{url} cannot be reached (")


@pytest.mark.parametrize(
    "counting",
    [
        None,
        refused("501 Not Implemented", "{}"),
        refused("200 OK", "<html>", "text/html"),
        refused("200 OK", '{"count": "many"}'),
        refused("200 OK", "[]"),
    ],
)
def test_a_server_that_does_not_count_answers_all_the_same(counting: Answer | None, chatting: Chatting) -> None:
    with serving(v1__models="vllm-models.json", tokenize=counting, **{CHAT_KEY: lambda call: call.send(GOOD)}) as one:
        chatting.load(one.url)
        assert text_of(chatting.ask()) == "Good."
        chatting.engine.send(Count(5, QUESTION))
        assert isinstance(chatting.until(Counted, Failed)[-1], Failed)


def test_a_prompt_that_does_not_fit_is_refused_before_it_is_sent(chatting: Chatting) -> None:
    with serving(v1__models="vllm-models.json", tokenize={"count": 1024}) as one:
        chatting.load(one.url)
        (event,) = chatting.ask()
        words = "The prompt has 1,024 tokens, and the server's context holds 1,024."
        assert event == Failed(1, "context", words)
        assert one.of(CHAT) == []


def test_the_rest_of_the_context_is_all_that_is_asked_for(chatting: Chatting) -> None:
    with serving(
        v1__models="vllm-models.json", tokenize={"count": 1000}, **{CHAT_KEY: lambda call: call.send(GOOD)}
    ) as one:
        chatting.load(one.url)
        chatting.ask()
        (call,) = one.of(CHAT)
    assert call.body["max_tokens"] == 24


def test_what_a_kind_of_server_does_not_have_is_refused(chatting: Chatting) -> None:
    from specchat.engine.protocol.options import Sampling, Written

    with serving(**MODELS) as one:
        chatting.load(one.url)
        (event,) = chatting.ask(sampling=Sampling(top_k=5))
        assert event == Failed(1, "request", "A server with OpenAI's API has no top_k: set it to 0.")
        (event,) = chatting.ask(2, begun=Written("Once"))
        words = "A server with OpenAI's API cannot go on from a reply's beginning. Send without one."
        assert event == Failed(2, "request", words)
        assert one.of(CHAT) == []


def test_requests_before_a_pair_is_loaded_are_refused(chatting: Chatting) -> None:
    assert chatting.ask() == [Failed(1, "request", "No pair is loaded.")]


def test_a_closed_engine_sends_nothing_more(chatting: Chatting) -> None:
    gone: list[bool] = []
    with serving(**MODELS, **{CHAT_KEY: lambda call: closes(call, gone)}) as one:
        chatting.load(one.url)
        chatting.send()
        chatting.until(Step)
        chatting.engine.close()
        assert chatting.engine.poll() == []
        assert not chatting.engine.alive
        chatting.engine.restart()
        chatting.until(Loaded)
    assert gone == [True]

"""Against llama.cpp's own server: plain, with a draft model, with n-grams. Without the package xllamacpp they skip."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from specchat.config.paths import demo_model
from specchat.engine.llama_cpp.export import export
from specchat.engine.protocol.events import Counted, Failed, Finished, Started, Step
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Written
from specchat.engine.protocol.requests import Cancel, Count
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.remote import lossless
from specchat.remote.prometheus import counters
from specchat.remote.server_replies import ServerReplies
from tests.remote.conftest import PATIENCE_S, QUESTION, Chatting, spec
from tests.remote.llama_server import LONG

MISSING = [name for name in ("xllamacpp", "gguf") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}: pip install {' '.join(MISSING)}")
ROOT = Path(__file__).parents[2]
KINDS = ("none", "draft", "ngram")
END = 1
"""The token that ends the demo's replies."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """The address of a server with a kind of drafting, started once."""
    folder = tmp_path_factory.mktemp("gguf")
    files = {role: folder / f"{role}.gguf" for role in ("target", "draft")}
    for role, file in files.items():
        export(Checkpoint.open(demo_model(role)), file, "f32")
    running: dict[tuple[str, ...], tuple[subprocess.Popen[str], str]] = {}

    def server(kind: str, *key: str) -> str:
        if (kind, *key) not in running:
            drafting = str(files["draft"]) if kind == "draft" else kind
            command = [sys.executable, "-m", "tests.remote.llama_server", str(files["target"]), drafting, *key]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert process.stdout is not None
            address = next(line.strip() for line in process.stdout if line.startswith("http"))
            running[kind, *key] = process, address
        return running[kind, *key][1]

    yield server
    for process, _ in running.values():
        process.kill()
        process.wait()


def finished(events: list[object]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


def told(url: str) -> str:
    """The text that the server gives any client for `QUESTION`, without a stream."""
    chat = [{"role": message.role, "content": message.content} for message in QUESTION]
    asked = {"messages": chat, "temperature": 0, "max_tokens": 48}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=asked, timeout=60).json()
    text: str = answer["choices"][0]["message"]["content"]
    return text


@pytest.mark.rotated(3)
@pytest.mark.parametrize("kind", KINDS)
def test_text_and_acceptance_are_the_servers_own(kind: str, servers: Callable[..., str], chatting: Chatting) -> None:
    url = servers(kind)
    assert chatting.load(url).notes.note.endswith("without drafting") == (kind == "none")
    before = counters(httpx2.get(f"{url}/metrics").text, "llamacpp:spec_decode_num_")
    events = chatting.ask()
    reply = finished([*events])
    after = counters(httpx2.get(f"{url}/metrics").text, "llamacpp:spec_decode_num_")
    assert reply.text == told(url)
    counted = {name: after[name] - before[name] for name in ("draft_tokens_total", "accepted_tokens_total")}
    assert reply.stats.num_draft_tokens == counted["draft_tokens_total"]
    assert reply.stats.num_accepted_draft_tokens == counted["accepted_tokens_total"]
    assert (reply.stats.num_draft_tokens > 0) == (kind == "draft") or kind == "ngram"
    assert sum(event.emitted for event in events if isinstance(event, Step)) == reply.stats.completion_tokens == 48
    sampled = Sampling(seed=7, temperature=0.8)
    drawn = finished([*chatting.ask(2, sampling=sampled, limits=Limits(40))]).text
    chatting.load(servers("none"))
    assert drawn == finished([*chatting.ask(3, sampling=sampled, limits=Limits(40))]).text


def test_prompts_are_counted_as_the_server_counts_them(servers: Callable[..., str], chatting: Chatting) -> None:
    chatting.load(servers("none"))
    chatting.engine.send(Count(5, QUESTION))
    counted = chatting.until(Counted, Failed)[-1]
    started = chatting.ask()[0]
    assert isinstance(counted, Counted)
    assert isinstance(started, Started)
    assert (counted.tokens, counted.context) == (started.prompt_tokens, 1024)


def test_a_reply_goes_on_from_its_beginning(servers: Callable[..., str], chatting: Chatting) -> None:
    chatting.load(servers("draft"))
    whole = finished([*chatting.ask(limits=Limits(40))]).text
    begun = whole[: whole.index(" cat") + 4]
    going_on = finished([*chatting.ask(2, begun=Written(begun), limits=Limits(20))])
    assert going_on.text.startswith(begun)
    assert going_on.text != begun
    assert whole.startswith(going_on.text)
    prefilled = finished([*chatting.ask(3, prefill="Once upon a time there was a cat", limits=Limits(5))])
    assert prefilled.text.startswith("Once upon a time there was a cat named")


def test_a_schema_holds_the_reply(servers: Callable[..., str], chatting: Chatting) -> None:
    chatting.load(servers("draft"))
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"]}
    grammar = Grammar("json_schema", json.dumps(schema | {"additionalProperties": False}))
    assert json.loads(finished([*chatting.ask(grammar=grammar)]).text).keys() == {"a"}
    refused = chatting.ask(2, grammar=Grammar("regex", "[0-9]+"))[-1]
    assert isinstance(refused, Failed)
    assert refused.message == "Llama.cpp's server takes JSON schemas, but no regular expressions."


def test_stopping_frees_the_slot(servers: Callable[..., str], chatting: Chatting) -> None:
    url = servers("long")
    chatting.load(url)
    endless = Sampling(logit_bias={END: -100.0})
    chatting.send(1, sampling=endless, limits=Limits())
    chatting.until(Step)
    chatting.engine.send(Cancel(1))
    assert finished([*chatting.until(Finished)]).reason == "cancelled"
    end = time.monotonic() + PATIENCE_S
    while any(slot["is_processing"] for slot in httpx2.get(f"{url}/slots").json()):
        assert time.monotonic() < end
    written = counters(httpx2.get(f"{url}/metrics").text, "llamacpp:")["tokens_predicted_total"]
    assert 0 < written < LONG / 2, "it did not write on to the end"
    assert finished([*chatting.ask(2)]).reason == "length"


def test_an_old_turn_is_left_out_of_a_full_context(servers: Callable[..., str], chatting: Chatting) -> None:
    chatting.load(url := servers("none"))
    old = [Message("user", "Tell me of a dog. " * 180), Message("assistant", "No.")]
    events = chatting.ask(messages=(*old, *QUESTION))
    started = events[0]
    assert isinstance(started, Started)
    assert started.dropped == 2
    assert finished([*events]).text == told(url)
    refused = chatting.ask(2, messages=(Message("user", "Tell me of a dog. " * 300),))[-1]
    assert isinstance(refused, Failed)
    assert refused.kind == "context"
    assert "the server's context holds 1,024" in refused.message


def test_the_key_is_sent_and_a_wrong_one_told(
    servers: Callable[..., str], chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = servers("none", "right")
    monkeypatch.setenv("BOX_KEY", "wrong")
    refused = chatting.tried(url, key_env="BOX_KEY", kind="llama.cpp")
    assert isinstance(refused, Failed)
    assert refused.message == f"{url} refuses the key in BOX_KEY (401: Invalid API Key)."
    monkeypatch.setenv("BOX_KEY", "right")
    chatting.load(url, key_env="BOX_KEY")
    assert finished([*chatting.ask(limits=Limits(4))]).text == "Once upon a time"


@pytest.mark.parametrize("seed", [2**32 - 1, 2**63 - 1])
def test_any_seed_repeats_a_reply(seed: int, servers: Callable[..., str], chatting: Chatting) -> None:
    chatting.load(servers("none"))
    texts = []
    for number, given in enumerate((seed, seed, seed - 1)):
        sampling = Sampling(given, temperature=2.0)
        texts.append(finished([*chatting.ask(number, sampling=sampling, limits=Limits(30))]).text)
    assert texts[0] == texts[1] != texts[2]


def test_all_sampling_options_are_taken(servers: Callable[..., str], chatting: Chatting) -> None:
    chatting.load(servers("draft"))
    sampling = Sampling(3, 1.1, 0.2, 0.1, {5: -3.0}, 0.9, 30, 0.9, 0.05)
    assert finished([*chatting.ask(sampling=sampling, limits=Limits(20, stop=("zzz",)))]).text
    greedy = finished([*chatting.ask(2, limits=Limits(40, stop=(" named",)))])
    whole = finished([*chatting.ask(3, limits=Limits(40))]).text
    assert (greedy.text, greedy.reason) == (whole[: whole.index(" named")], "stop")


def test_drafting_keeps_its_text_sampled_ones_too(servers: Callable[..., str]) -> None:
    chats = [("cat", QUESTION), ("dog", (Message("user", "Tell me of a dog."),))]
    with (
        ServerReplies(spec(servers("draft"))) as drafting,
        ServerReplies(spec(servers("none"))) as plain,
    ):
        found = list(lossless.greedy(drafting, plain, chats, 40))
        drawn = lossless.sampled(drafting, plain, chats, 30, 1)
        told = plain.options(QUESTION, 8, 5)
    assert [result.outcomes for result in found] == [("equal", "equal")] * 2
    assert drawn is not None
    assert (len(drawn.seeded), drawn.same_text, drawn.replies) == (2, 2, 2)
    assert told is not None
    assert (told.index, told.start, told.options[0].text) == (1, 4, b" upon")
    assert told.options[0].logprob > told.options[1].logprob

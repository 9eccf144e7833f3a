"""`specchat serve` as a process: where it listens, what it refuses, and that its text is that of `ask`."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx2
import pytest
from tokenizers import Tokenizer

from specchat.cli.exit_codes import ExitCode
from specchat.cli.serve import ContextLength, described, with_context
from specchat.config.catalog import Pair
from specchat.config.paths import demo_model
from specchat.engine.protocol.pair import ModelSource, PairSpec, Server
from specchat.installing import install_command
from specchat.serve.recipes import RECIPES
from tests.cli.conftest import Run
from tests.fake import INFO
from tests.parts import changed

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """A server's address, once it says it."""
    command = [sys.executable, "-m", "specchat", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, line
        yield line.split("http://")[1].split("/")[0]
    finally:
        process.terminate()
        assert process.wait(60) == ExitCode.TERMINATED


def test_other_machines_need_a_key(run: Run) -> None:
    result = run("serve", "--host", "0.0.0.0")
    assert result.exit_code == ExitCode.USAGE
    assert "SPECCHAT_SERVE_KEY" in result.stderr


def test_a_port_that_is_taken_is_said(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("serve", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == ExitCode.USAGE
    assert "Nothing can listen at 127.0.0.1" in result.stderr


@pytest.mark.parametrize(("wanted", "expected"), [(None, (None, False)), (512, (512, False)), (0, (None, True))])
def test_a_context_is_that_of_the_command_line(wanted: int | None, expected: tuple[int | None, bool]) -> None:
    here = ModelSource(path="/nowhere")
    spec = with_context(Pair(PairSpec("p", "P", here)), wanted).spec
    assert (spec.context, spec.long_context) == expected
    elsewhere = PairSpec("p", "P", ModelSource(server=Server("http://127.0.0.1:1")), backend="remote")
    if wanted is not None:
        with pytest.raises(click.UsageError, match="--context-length"):
            with_context(Pair(elsewhere), wanted)


def test_a_context_is_a_number_or_auto() -> None:
    assert [ContextLength().convert(value, None, None) for value in ("auto", "4096")] == [0, 4096]
    for wrong in ("many", "7"):
        with pytest.raises(click.BadParameter):
            ContextLength().convert(wrong, None, None)


def test_what_is_loaded_is_described_with_the_lines_of_a_client() -> None:
    shown = described(changed(INFO, warning="Slow."), "demo", "http://127.0.0.1:1", RECIPES["codex"])
    assert shown.startswith("It is loaded, with a context of 1,024 tokens.\nSlow.\n\n# Codex: in ~/.codex")
    assert 'base_url = "http://127.0.0.1:1/v1"' in shown
    assert "model_context_window = 1024" in shown
    assert described("It is broken.", "demo", "", None) == "demo cannot be loaded: It is broken.\n"


def test_missing_packages_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("specchat.serve.listening", raising=False)
    monkeypatch.setitem(sys.modules, "specchat.serve.listening", None)
    result = run("serve")
    assert result.exit_code == ExitCode.USAGE
    assert install_command("specchat[serve]") in result.stderr


@pytest.mark.skipif(not (demo_model("target") / "model.safetensors").exists(), reason="the demo pair is not here")
def test_its_text_is_that_of_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCHAT_ENGINE_MINUTES", "1")  # one engine for both
    asked = ("Tell me a story about a cat.", "--seed", "5", "--max-tokens", "40")
    with serving() as address:
        with httpx2.Client(base_url=f"http://{address}", timeout=120) as client:
            while client.get("/health").status_code == 503:
                time.sleep(0.05)  # else both processes work at nothing but this
            body = {"messages": [{"role": "user", "content": asked[0]}], "seed": 5, "max_tokens": 40}
            served = client.post("/v1/chat/completions", json=body).json()
            tokens = client.post("/tokenize", json={"content": "Once upon a time"}).json()["tokens"]
            raw = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
            completed = [client.post("/v1/completions", json={**raw, "strategy": s}).json() for s in ("plain", "auto")]
        alone = subprocess.run(
            [sys.executable, "-m", "specchat", "ask", "--json", *asked],
            cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=os.environ, check=True,
        )  # fmt: skip
    text = json.loads(alone.stdout)["text"]
    assert served["choices"][0]["message"]["content"] == text
    assert len(text) > 40
    assert tokens == Tokenizer.from_file(str(demo_model("target") / "tokenizer.json")).encode("Once upon a time").ids
    plain, drafted = (each["choices"][0]["text"] for each in completed)
    assert plain == drafted != ""
    subprocess.run(
        [sys.executable, "-m", "specchat", "engine", "stop"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )

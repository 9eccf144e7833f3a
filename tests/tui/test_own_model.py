"""A stranger's first days with a model of their own, in a real terminal."""

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_terminal import Terminal, needs_tmux, terminal

from specchat.config.paths import demo_model
from specchat.engine.fetch.source import Hub
from specchat.engine.llama_cpp.export import export
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import checkpoint
from tests.models.made import gguf, in_cache

pytestmark = needs_tmux
REPO = "someone/tiny"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal of a user with a model in the hub's cache, and one in LM Studio's folder."""
    user = tmp_path / "user"
    hub = Hub("http://127.0.0.1:1", user / "hub")
    snapshot = in_cache(hub, REPO, checkpoint(tmp_path / "made"))
    (snapshot / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_k": 20}))
    gguf(user / ".lmstudio" / "models" / "maker" / "small" / "m.gguf")
    environment = {"HOME": str(user), "HF_HUB_CACHE": str(hub.cache), "HF_HUB_OFFLINE": "1"}
    with terminal(**environment) as made:
        yield made


def ask(shell: Terminal, text: str, model: str = REPO) -> None:
    """Ask once the window is there, and wait for the reply, which names its model."""
    shell.until("ask something")
    shell.press(text, "Enter")
    shell.until(f"▌ {text}(?s:.*) {model} · [0-9,]+ tok/s")


def stopped(shell: Terminal) -> None:
    """Leave, and end the engine: the next start is the next day's."""
    shell.leave()
    assert "Stopped." in shell.specchat("engine", "stop")


def test_ones_own_model_comes_back_and_every_place_names_it(shell: Terminal) -> None:
    shell.start("--max-tokens 8")
    shell.until("ask something", "demo · auto")
    shell.press("F3", "Down", "Enter")  # at once, before the list is there
    shell.until(f"{REPO} · auto · temperature 0.6")
    ask(shell, "Hello there")
    shell.press("/about", "Enter")
    about = " ".join(shell.until("sampling").split())
    assert f"pair {REPO} " in about
    assert "temperature 0.6, top-k 20 (generation_config.json)" in about
    shell.press("Escape")
    stopped(shell)
    assert "*  someone-tiny " in shell.specchat("models")

    shell.start("--max-tokens 8")  # the same model, and the same chat
    shell.until("ask something", "Chosen last time", f"{REPO} · auto · temperature 0.6")
    shell.press("C-b")
    shell.until("Hello there +[0-9]")
    shell.press("Enter")
    shell.until("▌ Hello there")
    ask(shell, "And you")
    stopped(shell)

    shell.start("--continue --max-tokens 8 --pair demo")  # named, the demo answers, in this chat too
    ask(shell, "Who now", "demo")
    stopped(shell)
    shell.start("--continue --max-tokens 8 --pair someone/tiny")
    ask(shell, "And now")
    stopped(shell)
    shell.start("--continue --max-tokens 8")
    ask(shell, "At last")
    shell.leave()


@pytest.mark.skipif(find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
def test_a_gguf_file_says_what_it_needs_where_llama_cpp_is_missing(shell: Terminal) -> None:
    shell.start()
    shell.until("ask something", "demo · auto")
    shell.press("F3", "Down", "Down")
    row = "maker/small/m.gguf .*needs llama.cpp"
    assert re.search("fits .*needs llama-cpp-python: .*install", " ".join(shell.until(row, "fits  .*needs").split()))
    shell.press("Enter")
    shell.until("needs llama-cpp-python|llama-cpp-python is not|llama.cpp")
    shell.press("Escape")
    stopped(shell)
    assert "*  demo " in shell.specchat("models")  # what could not be loaded is no choice


@pytest.mark.needs_llama
@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
def test_ones_own_gguf_file_comes_back(shell: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "user" / ".lmstudio" / "models" / "maker" / "real"
    folder.mkdir(parents=True)
    export(Checkpoint.open(demo_model("target")), folder / "real.gguf", "f16")
    shell.start("--max-tokens 8")
    shell.until("ask something", "demo · auto")
    shell.press("/model maker/real/real.gguf", "Enter")
    shell.until("maker/real/real.gguf · auto")
    ask(shell, "Hello there", "maker/real/real.gguf")
    stopped(shell)
    shell.start("--continue --max-tokens 8")
    ask(shell, "And you", "maker/real/real.gguf")
    shell.leave()

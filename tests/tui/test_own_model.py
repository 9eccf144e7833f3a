"""A stranger's first days with a model of their own, in a real terminal."""

import json
import re
import shutil
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
from tests.models.made import gguf, in_cache, ollama

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
    shell.until(f"▌ {text}(?s:.*) {model} · auto · [0-9,]+ tok/s")


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
    shell.leave()
    shell.start("--continue --max-tokens 8 --pair someone/tiny")
    ask(shell, "And now")
    shell.leave()


@pytest.fixture(params=["ollama", pytest.param("lm studio", marks=pytest.mark.slow)])
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Terminal, str]]:
    """A terminal of a user with one model of another program and nothing else, and the name of the model."""
    user = tmp_path / "user"
    file = user / ".lmstudio" / "models" / "maker" / "small" / "small-Q8_0.gguf"
    file.parent.mkdir(parents=True)
    export(Checkpoint.open(demo_model("target")), file, "q8_0")
    name = "maker/small/small-Q8_0.gguf"
    if request.param == "ollama":
        ollama(user / ".ollama" / "models", "small:latest", file)
        shutil.rmtree(user / ".lmstudio")
        name = "small:latest"
    with terminal(HOME=str(user), HF_HUB_CACHE=str(user / "none"), HF_HUB_OFFLINE="1") as made:
        yield made, name


@pytest.mark.needs_gguf
def test_a_model_of_another_program_answers_after_three_keys_and_comes_back(stranger: tuple[Terminal, str]) -> None:
    shell, name = stranger
    shell.start("--max-tokens 8")
    shell.until("ask something", "demo · auto")
    shell.press("F3", "Down", "Enter")
    shell.until(f"{name} · auto")
    ask(shell, "Hello there", name)
    shell.press("/about", "Enter")
    assert "llama.cpp" not in shell.until("device +cpu, (up to|1 thread)", "template")
    shell.press("Escape")
    stopped(shell)
    assert re.search(f"{name} .* CPU, ", shell.specchat("models"))
    shell.start("--max-tokens 8")  # the next day
    shell.until("ask something", "Chosen last time", f"{name} · auto")
    ask(shell, "And you", name)
    shell.leave()


@pytest.mark.slow
@pytest.mark.needs_gguf
@pytest.mark.skipif(find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
@pytest.mark.parametrize("stranger", ["ollama"], indirect=True)
def test_a_model_that_llama_cpp_ran_comes_back_without_it_and_says_so(stranger: tuple[Terminal, str]) -> None:
    shell, name = stranger
    shell.start(f"--max-tokens 8 --pair {name}")
    ask(shell, "Hello there", name)
    stopped(shell)
    kept = next(shell.home.rglob("used.json"))
    used = json.loads(kept.read_text())
    used["last"] = used["pairs"][0]["id"]
    used["pairs"][0]["backend"] = "gguf"
    kept.write_text(json.dumps(used))
    shell.start("--max-tokens 8")
    shell.until("ask something", f"{name} · auto", "llama-cpp-python is not installed")
    ask(shell, "And you", name)
    shell.leave()


@pytest.mark.skipif(find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
def test_a_gguf_file_of_an_architecture_that_is_not_ours_says_what_it_needs(shell: Terminal) -> None:
    shell.start()
    shell.until("ask something", "demo · auto")
    shell.press("F3", "Down", "Down")
    row = "maker/small/m.gguf .*needs llama.cpp"
    assert re.search("fits .*needs llama-cpp-python: .*install", " ".join(shell.until(row, "fits  .*needs").split()))
    shell.press("Enter")
    shell.until(r"does\s+not\s+run\s+architecture\s+mpt", r"llama.cpp\s+may\s+run\s+it")  # wrapped by the path before
    shell.press("Escape")
    stopped(shell)
    assert "*  demo " in shell.specchat("models")  # what could not be loaded is no choice

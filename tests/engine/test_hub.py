"""Models by repository: downloaded with progress, then found in the cache without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.tiny import checkpoint
from tests.hub.server import loopback_hub, of_folder

LOAD = """
import json, sys
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
for repo in sys.argv[1:]:
    seen = []
    try:
        session = load(PairSpec("p", "P", ModelSource(repo=repo, device="cpu")), seen.append)
        found = {"context": session.info.context}
    except EngineError as error:
        found = {"kind": error.kind, "message": error.message}
    print(json.dumps(found | {"seen": [[s.what, s.fraction] for s in seen]}))
"""
Answers = dict[str, dict[str, Any]]
"""What loading a repository gave, by its name."""


def load(home: Path, endpoint: str, *repos: str) -> Answers:
    """The library reads its environment when it is imported, so each endpoint has a process of its own."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint}
    result = subprocess.run(
        [sys.executable, "-c", LOAD, *repos], env=environment, capture_output=True, text=True, timeout=400, check=True
    )
    return dict(zip(repos, map(json.loads, result.stdout.splitlines()[-len(repos) :]), strict=True))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub") / "home"


@pytest.fixture(scope="module")
def online(home: Path) -> Answers:
    """Of a hub that has one of two repositories."""
    folder = checkpoint(home.parent / "origin")
    with loopback_hub({"someone/tiny": of_folder(folder)}) as hub:
        return load(home, hub.endpoint, "someone/else", "someone/tiny")


@pytest.fixture(scope="module")
def offline(home: Path, online: Answers) -> Answers:
    """Without a network, once one of two has been downloaded."""
    assert "context" in online["someone/tiny"]
    return load(home, "http://127.0.0.1:1", "someone/new", "someone/tiny")


def test_a_repository_is_downloaded_once_with_progress(online: Answers, offline: Answers) -> None:
    first, again = online["someone/tiny"], offline["someone/tiny"]
    assert first.get("context") == 256, first
    downloading = [s for s in first["seen"] if s[0].startswith("downloading someone/tiny")]
    assert downloading
    assert downloading[-1][1] == 1.0, downloading
    assert again.get("context") == 256, again
    assert not [s for s in again["seen"] if "downloading" in s[0]]


def test_a_missing_repository_is_said_in_a_sentence(online: Answers) -> None:
    answer = online["someone/else"]
    assert answer["kind"] == "download"
    assert str(answer["message"]).endswith(
        "has no someone/else, or shows it only to some: check the name and HF_TOKEN."
    )


def test_no_network_is_one_short_sentence_and_nothing_is_read(offline: Answers) -> None:
    answer = offline["someone/new"]
    assert answer["message"] == "No connection to 127.0.0.1:1, where someone/new was looked for."
    assert not [what for what, _ in answer["seen"] if "reading" in what]

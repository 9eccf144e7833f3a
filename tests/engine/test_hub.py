"""Models by repository: downloaded with progress, then found in the cache without a network."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tests.engine.tiny import checkpoint
from tests.hub.server import loopback_hub, of_folder

LOAD = """
import json, sys
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
for line in sys.stdin:
    repo, seen = line.strip(), []
    try:
        session = load(PairSpec("p", "P", ModelSource(repo=repo, device="cpu")), seen.append)
        found = {"context": session.info.context}
    except EngineError as error:
        found = {"kind": error.kind, "message": error.message}
    print(json.dumps(found | {"seen": [[s.what, s.fraction] for s in seen]}), flush=True)
"""


class Answers(NamedTuple):
    """What loading a repository gave, by its name: of a hub that has one of two, and once it is gone."""

    endpoint: str
    online: dict[str, dict[str, Any]]
    offline: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The library reads its environment when it is imported, in a process of its own."""
    root = tmp_path_factory.mktemp("hub")
    with loopback_hub({"someone/tiny": of_folder(checkpoint(root / "origin"))}) as hub:
        environment = {**os.environ, "HF_HOME": str(root / "home"), "HF_ENDPOINT": hub.endpoint}
        process = subprocess.Popen(
            [sys.executable, "-c", LOAD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin
        assert process.stdout

        def load(repo: str) -> dict[str, Any]:
            process.stdin.write(f"{repo}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())  # type: ignore[no-any-return]

        online = {repo: load(repo) for repo in ("someone/else", "someone/tiny")}
    offline = {repo: load(repo) for repo in ("someone/new", "someone/tiny")}
    process.communicate(timeout=60)
    return Answers(hub.endpoint.removeprefix("http://"), online, offline)


def test_a_repository_is_downloaded_once_with_progress(answers: Answers) -> None:
    first, again = answers.online["someone/tiny"], answers.offline["someone/tiny"]
    assert first.get("context") == 256, first
    downloading = [s for s in first["seen"] if s[0].startswith("downloading someone/tiny")]
    assert downloading
    assert downloading[-1][1] == 1.0, downloading
    assert again.get("context") == 256, again
    assert not [s for s in again["seen"] if "downloading" in s[0]]


def test_a_missing_repository_is_said_in_a_sentence(answers: Answers) -> None:
    answer = answers.online["someone/else"]
    assert answer["kind"] == "download"
    assert str(answer["message"]).endswith(
        "has no someone/else, or shows it only to some: check the name and HF_TOKEN."
    )


def test_no_network_is_one_short_sentence_and_nothing_is_read(answers: Answers) -> None:
    answer = answers.offline["someone/new"]
    assert answer["message"] == f"No connection to {answers.endpoint}, where someone/new was looked for."
    assert not [what for what, _ in answer["seen"] if "reading" in what]

"""Models by repository: downloaded with progress, then found in the cache without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.engine.tiny import checkpoint
from tests.hub.server import loopback_hub, of_folder

LOAD = """
import json, sys
from specchat.engine.pair import ModelSource, PairSpec
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
seen = []
try:
    session = load(PairSpec("p", "P", ModelSource(repo=sys.argv[1], device="cpu")), seen.append)
    print(json.dumps({"context": session.info.context, "seen": [[s.what, s.fraction] for s in seen]}))
except EngineError as error:
    print(json.dumps({"kind": error.kind, "message": error.message, "seen": [[s.what, s.fraction] for s in seen]}))
"""


def load(home: Path, endpoint: str, repo: str = "someone/tiny") -> dict[str, object]:
    """The library reads its environment when it is imported, so each load is a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    environment |= {"HF_HOME": str(home), "HF_ENDPOINT": endpoint}
    result = subprocess.run(
        [sys.executable, "-c", LOAD, repo], env=environment, capture_output=True, text=True, timeout=400, check=True
    )
    return dict(json.loads(result.stdout.splitlines()[-1]))


def test_a_repository_is_downloaded_once_with_progress(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "origin")
    with loopback_hub({"someone/tiny": of_folder(folder)}) as hub:
        first = load(tmp_path / "home", hub.endpoint)
    assert first.get("context") == 256, first
    downloading = [s for s in first["seen"] if s[0].startswith("downloading someone/tiny")]  # type: ignore[attr-defined]
    assert downloading
    assert downloading[-1][1] == 1.0, downloading
    again = load(tmp_path / "home", "http://127.0.0.1:1")
    assert again.get("context") == 256, again
    assert not [s for s in again["seen"] if "downloading" in s[0]]  # type: ignore[attr-defined]


def test_a_missing_repository_is_said_in_a_sentence(tmp_path: Path) -> None:
    with loopback_hub({"someone/tiny": of_folder(checkpoint(tmp_path / "origin"))}) as hub:
        answer = load(tmp_path / "home", hub.endpoint, "someone/else")
    assert answer["kind"] == "download"
    assert str(answer["message"]).endswith(
        "has no someone/else, or shows it only to some: check the name and HF_TOKEN."
    )


def test_no_network_is_one_short_sentence_and_nothing_is_read(tmp_path: Path) -> None:
    answer = load(tmp_path / "home", "http://127.0.0.1:1")
    assert answer["message"] == "No connection to 127.0.0.1:1, where someone/tiny was looked for."
    assert not [what for what, _ in answer["seen"] if "reading" in what]  # type: ignore[attr-defined]

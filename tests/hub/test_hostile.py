"""Hubs that lie: whatever one sends is told in a sentence, within bounds, and nothing is written outside the cache."""

import gzip
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from specchat.engine.errors import EngineError
from specchat.engine.fetch import answer, transfer
from specchat.engine.fetch.answer import Cancelled
from specchat.engine.fetch.cached import cached
from specchat.engine.fetch.download import Download
from specchat.engine.fetch.listing import look_up, needed
from specchat.engine.fetch.source import Hub
from specchat.models.search import search
from tests.hub.hostile import as_json, for_ever, head, hostile_hub, whole
from tests.hub.server import git_digest, sha256

REPO = "someone/tiny"
COMMIT = "c" * 40
CONFIG, WEIGHTS = b'{"model_type": "llama"}', bytes(range(256)) * 400

PATIENCE_S = 60.0

Words = Callable[[str, Mapping[str, str]], Iterable[bytes]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "RETRY_S", 0.01)
    monkeypatch.setattr(answer, "SILENCE_S", PATIENCE_S)


def siblings() -> list[dict[str, Any]]:
    return [
        {"rfilename": "config.json", "size": len(CONFIG), "blobId": git_digest(CONFIG)},
        {
            "rfilename": "model.safetensors",
            "size": len(WEIGHTS),
            "blobId": "a" * 40,
            "lfs": {"sha256": sha256(WEIGHTS), "size": len(WEIGHTS), "pointerSize": 130},
        },
    ]


def info(**changes: object) -> dict[str, object]:
    return {"id": REPO, "sha": COMMIT, "siblings": siblings(), "tags": ["license:mit"], "gated": False, **changes}


def hub_saying(listing: Any = None, weights: Words | None = None) -> Words:
    def say(path: str, headers: Mapping[str, str]) -> Iterable[bytes]:
        if path.startswith("/api/"):
            if callable(listing):
                return listing(path, headers)  # type: ignore[no-any-return]
            return as_json(info() if listing is None else listing)
        if path.endswith("model.safetensors"):
            return weights(path, headers) if weights else whole(WEIGHTS)
        return whole(CONFIG)

    return say


def pull(hub: Hub) -> Path:
    listing = look_up(hub, REPO)
    return Download(hub, listing, needed(listing)).run()


def files(folder: Path) -> dict[str, bytes]:
    """All files in a folder that are no links, by their paths."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder with a cache folder and something of the user's, which stays as it is."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("mine")
    yield tmp_path / "home"
    outside = {name: data for name, data in files(tmp_path).items() if not name.startswith("home/cache/")}
    assert outside == {"home/.bashrc": b"mine"}
    for link in (tmp_path / "home" / "cache").rglob("*"):
        assert link.resolve().is_relative_to((tmp_path / "home" / "cache").resolve()), link


def refused(say: Words, home: Path) -> str:
    with hostile_hub(say) as served, pytest.raises(EngineError) as caught:
        pull(Hub(served.endpoint, home / "cache"))
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400
    assert not list((home / "cache").rglob("snapshots/*/model.safetensors"))
    return caught.value.message


def with_sibling(**changes: object) -> dict[str, object]:
    config, weights = siblings()
    return info(siblings=[config | changes, weights])


def with_weights(**changes: object) -> dict[str, object]:
    config, weights = siblings()
    return info(siblings=[config, weights | {"lfs": weights["lfs"] | changes}])


LISTINGS: dict[str, tuple[object, str]] = {
    "a commit that is a path": (info(sha="main/../../../../x"), "sha is 'main/../../../../x', not the hash of"),
    "a commit that is absolute": (info(sha="/tmp/x"), "sha is '/tmp/x', not the hash of a commit"),
    "a commit with a newline": (info(sha=COMMIT + "\n"), "sha is "),
    "no commit": (info(sha=None), "sha is None"),
    "a commit of another kind": (info(sha=[COMMIT]), "sha is ['ccc"),
    "tags that are no texts": (info(tags=[1, None]), "tags is [1, None], not a list of texts"),
    "files that are no list": (info(siblings={"a": 1}), "siblings is {'a': 1}, not a list of files"),
    "files that are no objects": (info(siblings=["config.json"]), "siblings is ['config.json'], not"),
    "a name that is no text": (with_sibling(rfilename=7), "siblings is "),
    "a size that is a text": (with_sibling(size="7"), "siblings is "),
    "no object at all": ([1, 2], "does not hold a JSON object"),
    "a hash that is a path": (with_weights(sha256="../../../.bashrc"), "there is no hash of it"),
    "a hash in capitals": (with_weights(sha256=sha256(WEIGHTS).upper()), "there is no hash of it"),
    "a hash with a newline": (with_weights(sha256=sha256(WEIGHTS) + "\n"), "there is no hash of it"),
    "no hash": (with_weights(sha256=""), "there is no hash of it"),
    "a size below nothing": (with_weights(size=-1), "there is no hash of it"),
    "a size without end": (with_weights(size=1 << 60), "there is no hash of it"),
    "a size of 10^4000": (with_weights(size=10**4000), "there is no hash of it"),
    "another size than it has": (
        with_weights(size=len(WEIGHTS) - 1),
        "sent more of model.safetensors than it announced",
    ),
    "one name twice": (info(siblings=siblings() + siblings()[:1]), "has two files of one name"),
    "names that differ in case": (
        info(siblings=[*siblings(), *({**siblings()[0], "rfilename": n} for n in ("a.jinja", "A.jinja"))]),
        "has two files of one name",
    ),
    "nested without end": (lambda *_: whole(b"[" * 100_000), "nested too deeply"),
    "no JSON": (lambda *_: whole(b"<html>"), "cannot be read as JSON"),
    "no UTF-8": (lambda *_: whole(b'{"sha": "\xff"}'), "cannot be read as JSON"),
    "compressed, though nobody asked": (
        lambda *_: whole(gzip.compress(bytes(1 << 20)), Content_Encoding="gzip"),
        "answered in 'gzip', and was asked for plain bytes",
    ),
    "sent on for ever": (lambda *_: [head("302 Found", Location="/api/models/a/b")], "without end"),
    "sent on to a file": (lambda *_: [head("302 Found", Location="file:///etc/passwd")], "No connection to 127.0.0.1"),
    "sent on to nowhere": (lambda *_: [head("302 Found", Location="http://[")], "No connection to 127.0.0.1"),
    "no HTTP": (lambda *_: [b"\0" * 4096], "No connection to 127.0.0.1"),
    "nothing": (lambda *_: [], "No connection to 127.0.0.1"),
    "a status of its own": (lambda *_: [head("799 No")], "does not work at the moment"),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_that_lies_is_told_in_a_sentence(name: str, home: Path) -> None:
    listing, words = LISTINGS[name]
    assert words in refused(hub_saying(listing), home)


NAMES = (
    "../../../.bashrc", "/etc/config.json", "..\\config.json", "a/../../config.json", "C:config.json", "a\0.jinja",
    "x\x1b[2J.jinja", "n" * 300 + ".jinja", "\ud800.jinja", "./config.json", "a//config.json", "", ".", "..",
    "\u202eja.jinja",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_is_not_taken(name: str, home: Path) -> None:
    odd = {**siblings()[0], "rfilename": name}
    with hostile_hub(hub_saying(info(siblings=[odd, *siblings()]))) as served:
        folder = pull(Hub(served.endpoint, home / "cache"))
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("etag", ["../../../../.bashrc", '"x"y"', 'W/"../x"', "a b", sha256(b"another")])
def test_nothing_is_asked_again_once_it_was_checked(etag: str, home: Path) -> None:
    """The library would ask again, and make paths of the commit and the ETag that it is told then."""

    def say(path: str, _: Mapping[str, str]) -> Iterable[bytes]:
        told = {"ETag": etag, "X-Repo-Commit": "../../../../evil", "X-Linked-Etag": etag}
        if path.startswith("/api/"):
            return as_json(info(sha="../../x")) if asked["listings"] else as_json(info())
        return whole(CONFIG if path.endswith("config.json") else WEIGHTS, **told)

    asked = {"listings": 0}
    with hostile_hub(say) as served:
        hub = Hub(served.endpoint, home / "cache")
        listing = look_up(hub, REPO)
        asked["listings"] = 1
        folder = Download(hub, listing, needed(listing)).run()
        paths = [first.split(" ")[:2] for first, _ in served.asked]
    assert folder.name == COMMIT
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [method for method, _ in paths] == ["GET"] * 3
    assert len([path for _, path in paths if path.startswith("/api/")]) == 1


def test_a_licence_is_shown_without_what_it_holds_besides(home: Path) -> None:
    with hostile_hub(hub_saying(info(tags=["license:\ud800\x1b[2J" + "x" * 9000]))) as served:
        licence = look_up(Hub(served.endpoint, home / "cache"), REPO).licence
    assert licence.isprintable()
    assert len(licence) == 40


def rest(headers: Mapping[str, str]) -> int:
    return int(headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


WEIGHT_ANSWERS: dict[str, tuple[Words, str]] = {
    "other bytes": (lambda *_: whole(bytes(len(WEIGHTS))), "came damaged"),
    "more than announced": (lambda *_: [head(), WEIGHTS, b"x"], "sent more of"),
    "an endless chunked body": (
        lambda *_: _chunked(for_ever(b"10000\r\n" + bytes(1 << 16) + b"\r\n")),
        "sent more of",
    ),
    "less than announced": (lambda *_: whole(WEIGHTS[:-1]), "only in part"),
    "a longer Content-Length": (lambda *_: [head(Content_Length=1 << 50) + WEIGHTS + b"xx"], "sent more of"),
    "a negative Content-Length": (lambda *_: [head(Content_Length=-5) + WEIGHTS], "onnection to 127.0.0.1"),
    "compressed": (lambda *_: whole(gzip.compress(WEIGHTS), Content_Encoding="gzip"), "plain bytes"),
    "a bomb": (lambda *_: whole(gzip.compress(bytes(1 << 24)), Content_Encoding="gzip"), "plain bytes"),
    "chunks of no size": (lambda *_: _chunked([b"zz\r\nxx\r\n"]), "onnection to 127.0.0.1"),
    "nothing at all, again and again": (lambda *_: whole(b""), "only in part"),
    "a path as the file's status": (lambda *_: [head("404 ../../x")], "has no someone/tiny"),
    "sent on to a file": (lambda *_: [head("307 On", Location="file:///etc/passwd")], "onnection to 127.0.0.1"),
}


def _chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield head(Transfer_Encoding="chunked")
    yield from pieces


@pytest.mark.parametrize("name", WEIGHT_ANSWERS)
def test_weights_that_lie_are_not_registered(name: str, home: Path) -> None:
    say, words = WEIGHT_ANSWERS[name]
    assert words in refused(hub_saying(weights=say), home)


def test_the_rest_of_a_file_that_is_another_part_is_found_out(home: Path) -> None:
    def say(_: str, headers: Mapping[str, str]) -> Iterable[bytes]:
        if not (start := rest(headers)):
            return [head(Content_Length=len(WEIGHTS)) + WEIGHTS[:1001]]
        part = WEIGHTS[: len(WEIGHTS) - start]
        told = f"bytes 0-{len(part) - 1}/{len(WEIGHTS)}"
        return [head("206 Partial", Content_Range=told, Content_Length=len(part)) + part]

    assert "came damaged" in refused(hub_saying(weights=say), home)


def test_the_token_does_not_go_to_other_hosts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with hostile_hub(lambda *_: whole(WEIGHTS)) as other:
        away = other.endpoint.replace("127.0.0.1", "localhost") + "/model"
        with hostile_hub(hub_saying(weights=lambda *_: [head("302 Found", Location=away)])) as served:
            pull(Hub(served.endpoint, home / "cache"))
            assert any("authorization" in headers for _, headers in served.asked)
        assert other.asked
        assert not any("authorization" in headers for _, headers in other.asked)


def test_a_blob_of_another_program_is_compared_with_its_hash(home: Path) -> None:
    with hostile_hub(hub_saying()) as served:
        hub = Hub(served.endpoint, home / "cache")
        blob = hub.folder(REPO) / "blobs" / sha256(WEIGHTS)
        blob.parent.mkdir(parents=True)
        blob.write_bytes(bytes(len(WEIGHTS)))
        assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_folder_of_the_commit_that_leads_away_is_not_written_to(home: Path) -> None:
    elsewhere = home / "cache" / "elsewhere"
    elsewhere.mkdir(parents=True)
    with hostile_hub(hub_saying()) as served:
        hub = Hub(served.endpoint, home / "cache")
        (hub.folder(REPO) / "snapshots").mkdir(parents=True)
        hub.snapshot(REPO, COMMIT).symlink_to(elsewhere)
        with pytest.raises(EngineError, match="leads out of"):
            pull(hub)
    assert not list(elsewhere.iterdir())


def test_a_noted_commit_that_is_a_path_is_not_followed(home: Path) -> None:
    hub = Hub("http://127.0.0.1:1", home / "cache")
    (home / "cache" / "config.json").parent.mkdir()
    (home / "cache" / "config.json").write_bytes(CONFIG)
    (home / "cache" / "model.safetensors").write_bytes(WEIGHTS)
    (hub.folder(REPO) / "refs").mkdir(parents=True)
    (hub.folder(REPO) / "refs" / "main").write_text("../../../cache")
    assert cached(hub, REPO) is None


def test_a_listing_without_end_is_left_within_bounds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.engine.fetch.listing.LISTING_BYTES", 4 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = refused(hub_saying(lambda *_: _chunked(for_ever(b"10000\r\n" + b" " * (1 << 16) + b"\r\n"))), home)
    assert "answered with more than 4 MB" in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB


def test_a_body_behind_a_redirect_is_not_read(home: Path) -> None:
    def say(path: str, headers: Mapping[str, str]) -> Iterable[bytes]:
        if path == "/api/models/someone/tiny":
            return [head("302 Found", Location="/api/here", Content_Length=1 << 40), *[bytes(1 << 16)] * 4]
        return hub_saying()(path, headers)

    with hostile_hub(say) as served:
        assert pull(Hub(served.endpoint, home / "cache")).name == COMMIT


def test_a_listing_that_drips_ends_in_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.engine.fetch.listing.LISTING_S", 0.3)
    said = refused(hub_saying(lambda *_: _drip(b" ")), home)
    assert "answers too slowly" in said
    monkeypatch.setattr("specchat.models.search.PATIENCE_S", 0.3)
    with hostile_hub(lambda *_: _drip(b" ")) as served, pytest.raises(EngineError, match="too slowly"):
        search(Hub(served.endpoint, home / "cache"), "words")


def _drip(piece: bytes, first: bytes = b"") -> Iterator[bytes]:
    yield first or head()
    yield from for_ever(piece, 0.05)


@pytest.mark.parametrize(
    "hits", [{"id": 1}, [{"id": "a/b", "tags": [1]}], [[]], [{"downloads": 3}], [{"id": "a", "safetensors": 4}]]
)
def test_what_is_found_by_words_is_checked_too(hits: object, home: Path) -> None:
    with hostile_hub(lambda *_: as_json(hits)) as served, pytest.raises(EngineError, match="What 127"):
        search(Hub(served.endpoint, home / "cache"), "words")


LINKS: dict[str, Words] = {
    "a byte now and then": lambda *_: _drip(b"x", head(Content_Length=len(WEIGHTS))),
    "a head that drips": lambda *_: _drip(b"X", b"HTTP/1.1 200 OK\r\nX: "),
    "no answer": lambda *_: _silent(b""),
    "half a head": lambda *_: _silent(b"HTTP/1.1 200"),
    "half a body": lambda *_: _silent(head(Content_Length=len(WEIGHTS)) + WEIGHTS[:5000]),
    "interim answers": lambda *_: _drip(b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


def _silent(first: bytes) -> Iterator[bytes]:
    yield first
    yield from for_ever(b"", 0.05)


@pytest.mark.parametrize("link", LINKS)
def test_a_cancelled_download_ends_whatever_the_link_does(
    link: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SILENCE_S", "HEAD_S"):
        monkeypatch.setattr(answer, name, 10 * PATIENCE_S)
    reached = Event()

    def weights(path: str, headers: Mapping[str, str]) -> Iterable[bytes]:
        reached.set()
        return LINKS[link](path, headers)

    with hostile_hub(hub_saying(weights=weights)) as served:
        hub = Hub(served.endpoint, home / "cache")
        listing = look_up(hub, REPO)
        running = Download(hub, listing, needed(listing))
        ended = Event()

        def run() -> None:
            with pytest.raises(Cancelled):
                running.run()
            ended.set()

        Thread(target=run, daemon=True).start()
        assert reached.wait(PATIENCE_S)
        running.cancel()
        assert ended.wait(PATIENCE_S)


LEAVE = """
import sys
from pathlib import Path
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource
from specchat.models.pull import Task
task = Task("tiny", Hub(sys.argv[1], Path(sys.argv[2])), [ModelSource(repo="someone/tiny")])
while task.state == "asking":
    pass
task.start()
sys.stdin.readline()
"""


def test_a_program_that_is_left_does_not_wait_for_its_downloads(home: Path) -> None:
    reached = Event()

    def weights(path: str, headers: Mapping[str, str]) -> Iterable[bytes]:
        reached.set()
        return LINKS["a byte now and then"](path, headers)

    with hostile_hub(hub_saying(weights=weights)) as served:
        command = [sys.executable, "-c", LEAVE, served.endpoint, str(home / "cache")]
        running = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert reached.wait(PATIENCE_S)
        running.communicate(b"\n", timeout=PATIENCE_S)
        assert running.returncode == 0


@pytest.mark.parametrize("slow", ["listing", "weights"])
def test_ctrl_c_ends_a_pull_over_a_slow_link(slow: str, home: Path) -> None:
    reached = Event()

    def dripping(*_: object) -> Iterable[bytes]:
        reached.set()
        return _drip(b" ", head(Content_Length=len(WEIGHTS)))

    say = hub_saying(dripping) if slow == "listing" else hub_saying(weights=dripping)
    with hostile_hub(say) as served:
        environment = {**os.environ, "HF_ENDPOINT": served.endpoint, "HF_HUB_CACHE": str(home / "cache")}
        command = [sys.executable, "-m", "specchat", "models", "pull", REPO, "--yes"]
        running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert reached.wait(PATIENCE_S)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=PATIENCE_S)
    assert running.returncode != 0
    assert "Traceback" not in told

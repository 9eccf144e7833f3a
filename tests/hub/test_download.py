"""Downloads from a hub on loopback: what is cut goes on at the right byte, what fails leaves nothing half there."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import pytest

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch import download, transfer
from specchat.engine.fetch.answer import Cancelled
from specchat.engine.fetch.cached import cached
from specchat.engine.fetch.download import Download, Progress
from specchat.engine.fetch.listing import look_up, missing, needed
from specchat.engine.fetch.source import Hub
from tests.hub.server import LoopbackHub, commit, git_digest, loopback_hub, sha256

REPO = "someone/tiny"
WEIGHTS = random.Random(0).randbytes(300_000)
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickled",
    "modeling_llama.py": b"print('code')",
    "README.md": b"# words",
}
PATIENCE_S = 60.0
KEPT = {"config.json", "tokenizer.json", "model.safetensors"}


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    monkeypatch.setattr(transfer, "RETRY_S", 0.01)
    with loopback_hub({REPO: FILES}) as served:
        yield served


@pytest.fixture
def hub(loopback: LoopbackHub, tmp_path: Path) -> Hub:
    return Hub(loopback.endpoint, tmp_path / "cache")


def pull(hub: Hub, told: list[Progress] | None = None) -> Path:
    listing = look_up(hub, REPO)
    return Download(hub, listing, needed(listing), (told if told is not None else []).append).run()


def until(true: Callable[[], object]) -> None:
    end = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < end, "it never came true"
        sleep(0.01)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def blobs(hub: Hub) -> set[str]:
    return {path.name for path in (hub.folder(REPO) / "blobs").glob("*")}


def registered(hub: Hub) -> bool:
    return any((hub.folder(REPO) / "snapshots").glob("*/*"))


def test_only_what_a_model_needs_is_fetched(hub: Hub, loopback: LoopbackHub) -> None:
    told: list[Progress] = []
    folder = pull(hub, told)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: FILES[name] for name in KEPT}
    assert folder.name == commit(REPO)
    assert told[-1].done == told[-1].total == sum(len(FILES[name]) for name in KEPT)
    assert cached(hub, REPO) == folder
    loopback.asked.clear()
    assert pull(hub) == folder
    assert not any(name in path for path in loopback.asked for name in ("safetensors", "bin", ".py"))


def test_the_listing_tells_sizes_licence_and_what_is_missing(hub: Hub, loopback: LoopbackHub) -> None:
    listing = look_up(hub, REPO)
    assert (listing.commit, listing.licence, listing.gated) == (commit(REPO), "apache-2.0", False)
    files = needed(listing)
    assert {file.name for file in files} == KEPT
    assert missing(hub, listing, files) == sum(len(FILES[name]) for name in KEPT)
    pull(hub)
    assert missing(hub, listing, files) == 0
    loopback.gated = True
    assert look_up(hub, REPO).gated


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_download_resumes_to_the_right_bytes(
    hub: Hub, loopback: LoopbackHub, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MAX_FAILURES", 0)
    at = random.Random(seed).randrange(1, len(WEIGHTS))
    loopback.cuts = [at]
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert caught.value.kind == "download"
    assert not registered(hub)
    part = hub.partial(REPO, sha256(WEIGHTS)).read_bytes()
    assert WEIGHTS.startswith(part)
    assert len(part) == at
    loopback.sent = {}
    folder = pull(hub)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert loopback.sent["model.safetensors"] == len(WEIGHTS) - len(part)


def test_a_connection_cut_again_and_again_is_taken_up_by_itself(hub: Hub, loopback: LoopbackHub) -> None:
    loopback.cuts = [70_000, 1, 100_000, 0, 66_000]
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_hub_that_sends_no_parts_sends_all_again(hub: Hub, loopback: LoopbackHub) -> None:
    loopback.cuts, loopback.ranges = [200_000], False
    told: list[Progress] = []
    assert (pull(hub, told) / "model.safetensors").read_bytes() == WEIGHTS
    assert told[-1].done == told[-1].total


def test_what_was_cancelled_goes_on_where_it_was(hub: Hub, loopback: LoopbackHub) -> None:
    loopback.stalls.set()
    listing = look_up(hub, REPO)
    running = Download(hub, listing, needed(listing))
    part = hub.partial(REPO, sha256(WEIGHTS))
    ended: list[BaseException] = []

    def run() -> None:
        try:
            running.run()
        except Cancelled as error:
            ended.append(error)

    thread = Thread(target=run)
    thread.start()
    until(lambda: size(part))
    running.cancel()
    loopback.stalls.clear()
    thread.join(PATIENCE_S)
    assert ended
    assert not registered(hub)
    kept = part.stat().st_size
    assert kept > 0
    loopback.sent = {}
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS
    assert loopback.sent["model.safetensors"] == len(WEIGHTS) - kept


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "", "has no someone/tiny, or shows it only to some: check the name and HF_TOKEN."),
        (401, "GatedRepo", "needs permission: accept its terms at 127.0.0.1"),
        (403, "", "needs permission: accept its terms at 127.0.0.1"),
        (404, "RepoNotFound", "has no someone/tiny, or shows it only to some: check the name and HF_TOKEN."),
        (404, "RevisionNotFound", "someone/tiny has no such revision"),
        (429, "", "was asked too often: try again in some minutes."),
        (500, "", "does not work at the moment (error 500): try again later."),
    ],
)
def test_refusals_are_one_short_sentence(hub: Hub, loopback: LoopbackHub, status: int, code: str, words: str) -> None:
    loopback.status, loopback.code = status, code
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert caught.value.kind == "download"
    assert words in caught.value.message
    assert len(caught.value.message) < 160
    assert not hub.folder(REPO).exists()


@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
def test_a_file_refused_in_the_middle_leaves_nothing_half_there(hub: Hub, loopback: LoopbackHub, status: int) -> None:
    loopback.file_status = status
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert "\n" not in caught.value.message
    assert not registered(hub)
    loopback.file_status = 0
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_file_with_another_hash_is_thrown_away(hub: Hub, loopback: LoopbackHub) -> None:
    loopback.spoiled = True
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert "came damaged: its hash is not the one announced" in caught.value.message
    assert not registered(hub)
    assert not hub.partial(REPO, sha256(WEIGHTS)).exists()
    assert sha256(WEIGHTS) not in blobs(hub)
    loopback.spoiled = False
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_damaged_beginning_is_found_by_its_hash(hub: Hub) -> None:
    part = hub.partial(REPO, sha256(WEIGHTS))
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    with pytest.raises(EngineError):
        pull(hub)
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS


def test_no_room_is_told_before_anything_is_fetched(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "free_room", lambda _: 1000)
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert "The disk is too full for someone/tiny: 0.3 MB are missing, 1,000 bytes are free" in caught.value.message
    assert not hub.folder(REPO).exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_disk_that_fills_up_leaves_nothing_registered(hub: Hub) -> None:
    part = hub.partial(REPO, sha256(WEIGHTS))
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert caught.value.message.startswith("The disk is full: someone/tiny could not be downloaded.")
    assert not registered(hub)
    part.unlink()
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS


def test_no_network_is_one_short_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        look_up(Hub("http://127.0.0.1:1", tmp_path), REPO)
    assert caught.value.message == "No connection to 127.0.0.1:1, where someone/tiny was looked for."


def test_offline_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(EngineError) as caught:
        pull(hub)
    assert caught.value.message == f"HF_HUB_OFFLINE keeps {hub.host} from being asked for someone/tiny."


PULL = """
import sys
from pathlib import Path
from specchat.engine.fetch.download import Download
from specchat.engine.fetch.listing import look_up, needed
from specchat.engine.fetch.source import Hub
hub = Hub(sys.argv[1], Path(sys.argv[2]))
listing = look_up(hub, "someone/tiny")
print(Download(hub, listing, needed(listing)).run())
"""


def test_two_programs_that_pull_the_same_model_do_it_once(hub: Hub, loopback: LoopbackHub) -> None:
    loopback.pace = 0.01
    command = [sys.executable, "-c", PULL, hub.endpoint, str(hub.cache)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {running.communicate(timeout=300)[0].strip() for running in both}
    assert [running.returncode for running in both] == [0, 0]
    assert len(folders) == 1
    assert (Path(folders.pop()) / "model.safetensors").read_bytes() == WEIGHTS
    assert loopback.sent["model.safetensors"] == len(WEIGHTS)


def test_a_program_that_is_killed_keeps_its_part(hub: Hub, loopback: LoopbackHub) -> None:
    loopback.stalls.set()
    running = subprocess.Popen([sys.executable, "-c", PULL, hub.endpoint, str(hub.cache)], stdout=subprocess.DEVNULL)
    until(lambda: size(hub.partial(REPO, sha256(WEIGHTS))))
    running.kill()
    running.wait()
    loopback.stalls.clear()
    loopback.sent = {}
    assert (pull(hub) / "model.safetensors").read_bytes() == WEIGHTS
    assert loopback.sent["model.safetensors"] < len(WEIGHTS)


# Which files


def listed(loopback: LoopbackHub, hub: Hub, *names: str, file: str | None = None) -> set[str]:
    loopback.repos[REPO] = {name: name.encode() for name in names}
    return {f.name for f in needed(look_up(hub, REPO), file)}


def test_shards_are_taken_by_their_index_and_copies_in_other_forms_left(hub: Hub, loopback: LoopbackHub) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    others = ("consolidated.safetensors", "onnx/config.json", "original/tokenizer.model", "config.json")
    names = (*shards, *others, "model.safetensors.index.json")
    assert listed(loopback, hub, *names) == shards | {"config.json", "model.safetensors.index.json"}


def test_medusa_heads_are_found_by_their_own_name(hub: Hub, loopback: LoopbackHub) -> None:
    names = ("medusa_lm_head.pt", "medusa_lm_head.safetensors", "config.json")
    assert listed(loopback, hub, *names) == {"config.json", "medusa_lm_head.safetensors"}
    assert "model.safetensors" in listed(loopback, hub, *names, "model.safetensors")


def test_of_several_gguf_files_one_is_taken_whole(hub: Hub, loopback: LoopbackHub) -> None:
    parts = [f"m-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    names = ("m-Q4_K_M.gguf", "m-Q2_K.gguf", "mmproj-m.gguf", "mtp-m-Q4_K_M.gguf", *parts)
    assert listed(loopback, hub, *names) == {"m-Q4_K_M.gguf", "mmproj-m.gguf"}
    assert listed(loopback, hub, *names, file=parts[0]) == {*parts, "mmproj-m.gguf"}
    deep = ("q4/m-00001-of-00002.gguf", "q4/m-00002-of-00002.gguf")
    assert listed(loopback, hub, "m-Q8_0.gguf", *deep, file=deep[0]) == set(deep)
    loopback.repos[REPO] = {name: bytes(10) + name.encode() for name in deep}
    assert cached(hub, REPO, None, deep[0]) is None
    listing = look_up(hub, REPO)
    folder = Download(hub, listing, needed(listing, deep[0])).run()
    assert cached(hub, REPO, None, deep[0]) == folder
    (folder / deep[1]).unlink()
    assert cached(hub, REPO, None, deep[0]) is None
    with pytest.raises(ModelError, match="or not all parts"):
        listed(loopback, hub, parts[0], file=parts[0])
    with pytest.raises(ModelError, match="Say which with --file"):
        listed(loopback, hub, "a-Q2_K.gguf", "a-Q3_K.gguf")


def test_the_tower_of_a_gguf_file_comes_with_it(hub: Hub, loopback: LoopbackHub) -> None:
    """In float16 where there is one, else in other forms, and of several models by the likeness of names."""
    text, towers = "a-4b-Q4_K_M.gguf", ["mmproj-F16.gguf", "mmproj-BF16.gguf", "a-mmproj-f32.gguf", "mmproj-Q8_0.gguf"]
    for at, tower in enumerate(towers):
        assert listed(loopback, hub, text, *towers[at:], file=text) == {text, tower}
    sizes = ["mmproj-a-12b-f16.gguf", "mmproj-a-4b-f16.gguf"]
    assert listed(loopback, hub, text, *sizes, *towers[1:]) == {text, sizes[1]}
    assert listed(loopback, hub, text, "q8/mmproj-F16.gguf") == {text}
    assert listed(loopback, hub, text, *towers, file=towers[1]) == {towers[1]}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("config.json", "pytorch_model.bin"), "has no weights as safetensors or GGUF: it has .bin files"),
        (("adapter_config.json", "adapter_model.safetensors"), "is an adapter, not a model"),
        (("README.md",), "has no weights as safetensors or GGUF. Take another"),
    ],
)
def test_repositories_without_weights_that_are_read(
    hub: Hub, loopback: LoopbackHub, names: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ModelError) as caught:
        listed(loopback, hub, *names)
    assert words in caught.value.message


def test_names_that_would_leave_the_folder_are_not_taken(hub: Hub, loopback: LoopbackHub) -> None:
    assert listed(loopback, hub, "../model.safetensors", "..\\config.json", "model.safetensors") == {
        "model.safetensors"
    }


def test_a_folder_with_a_part_missing_is_not_whole(hub: Hub) -> None:
    folder = pull(hub)
    (folder / "model.safetensors").unlink()
    assert cached(hub, REPO) is None
    (folder / "model.safetensors").symlink_to("../../blobs/gone")
    assert cached(hub, REPO) is None


def test_small_files_are_checked_by_gits_hash(hub: Hub) -> None:
    pull(hub)
    assert git_digest(FILES["config.json"]) in blobs(hub)


def test_several_files_come_side_by_side(hub: Hub, loopback: LoopbackHub) -> None:
    shards = {f"model-0000{n}-of-00003.safetensors": bytes([n]) * 40_960 for n in (1, 2, 3)}
    loopback.repos[REPO] = {**shards, "config.json": b"{}", "model.safetensors.index.json": b"{}"}
    loopback.stalls.set()
    listing = look_up(hub, REPO)
    running = Thread(target=Download(hub, listing, needed(listing)).run)
    running.start()
    until(lambda: all(0 < loopback.sent.get(name, 0) < len(shards[name]) for name in shards))
    loopback.stalls.clear()
    running.join()
    assert all(loopback.sent[name] == len(shards[name]) for name in shards)

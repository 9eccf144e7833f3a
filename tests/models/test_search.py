"""Models on the hub by words: what is read here, what it takes, what runs it; nothing that a hub says is trusted."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

import pytest

from specchat.engine.errors import EngineError
from specchat.engine.fetch.answer import Cancelled
from specchat.engine.fetch.listing import weights_among
from specchat.engine.fetch.source import Hub
from specchat.models.hub_offers import hub_offer, unheld
from specchat.models.library import ModelPlaces, look
from specchat.models.machine import FreeMemory
from specchat.models.offers import found_pairs
from specchat.models.search import HubHit, search, sized
from specchat.models.words import about
from tests.hub.hostile import as_json, for_ever, head, hostile_hub
from tests.hub.server import LoopbackHub, loopback_hub
from tests.models.made import gguf, in_cache

GIB = 1 << 30
ROOMY = FreeMemory(None, 64 * GIB)
REPOS: dict[str, Mapping[str, bytes]] = {
    "a/tensors-8B": {"config.json": b"{}", "model.safetensors": bytes(4000)},
    "b/files-8B-GGUF": {"x-Q8_0.gguf": bytes(900), "x-Q4_K_M.gguf": bytes(500), "mmproj-x.gguf": bytes(70)},
    "c/split-8B-GGUF": {f"x-Q4_K_M-0000{n}-of-00002.gguf": bytes(300) for n in (1, 2)},
    "d/many-8B-GGUF": {f"x-IQ{n}_S.gguf": bytes(10) for n in (1, 2, 3)},
    "e/pickled-8B": {"config.json": b"{}", "pytorch_model.bin": bytes(10)},
}


@pytest.fixture
def served() -> Iterator[LoopbackHub]:
    with loopback_hub(REPOS) as hub:
        yield hub


def at(served: LoopbackHub, tmp_path: Path) -> Hub:
    return Hub(served.endpoint, tmp_path / "cache")


def test_hits_are_those_that_are_read_here_with_the_file_to_take_and_its_size(
    served: LoopbackHub, tmp_path: Path
) -> None:
    hub = at(served, tmp_path)
    hits = list(sized(hub, search(hub, "8b")))
    assert [(hit.repo, hit.format, hit.file, hit.size) for hit in hits] == [
        ("a/tensors-8B", "safetensors", "", 4002),
        ("b/files-8B-GGUF", "GGUF", "x-Q4_K_M.gguf", 570),
        ("c/split-8B-GGUF", "GGUF", "x-Q4_K_M-00001-of-00002.gguf", 600),
        ("d/many-8B-GGUF", "GGUF", "", 0),
    ]
    assert "has 3 GGUF files" in hits[-1].problem
    assert {hit.downloads for hit in hits} == {7}
    assert [hub_offer(hit, ROOMY).fit.verdict for hit in hits] == ["CPU", "CPU", "CPU", "no"]


def test_sizes_stay_open_where_the_hub_has_enough(served: LoopbackHub, tmp_path: Path) -> None:
    hub = at(served, tmp_path)
    hits = search(hub, "8b")
    served.status = 429
    assert list(sized(hub, hits)) == list(hits)
    with pytest.raises(EngineError, match="was asked too often"):
        search(hub, "8b")


def test_a_search_is_given_up_at_once(tmp_path: Path) -> None:
    over = Event()
    over.set()
    with hostile_hub(lambda *_: for_ever(b" ", 0.05)) as served, pytest.raises(Cancelled):
        search(Hub(served.endpoint, tmp_path), "words", over)
    with loopback_hub(REPOS) as hub, pytest.raises(Cancelled):
        list(sized(at(hub, tmp_path), search(at(hub, tmp_path), "8b"), over))


@pytest.mark.parametrize(
    "repo", ["../../etc", "a/..", "/etc/passwd", "a/\x1b[31mred", "a/\u202eb", "a\nb/c", "no-owner", "a/" + "b" * 300]
)
def test_a_name_that_is_none_is_not_listed(repo: str, tmp_path: Path) -> None:
    files = [{"rfilename": "model.safetensors"}]
    found = [{"id": repo, "siblings": files}, {"id": "a/sound", "siblings": files, "tags": ["license:\x1b[2Jmit"]}]
    with hostile_hub(lambda *_: as_json(found)) as served:
        (hit,) = search(Hub(served.endpoint, tmp_path), "a")
    assert (hit.repo, hit.licence) == ("a/sound", "␛[2Jmit")


@pytest.mark.parametrize("name", ["../m.gguf", "a/m.gguf", "/m.gguf", "m\x1b[1m.gguf", "m\u202e.gguf", "m.gguf/.."])
def test_a_file_that_is_a_path_is_not_taken(name: str) -> None:
    assert weights_among([name]) == ("", "")


def test_what_others_alone_read_or_what_writes_no_text_is_left_out(tmp_path: Path) -> None:
    files = [{"rfilename": "model.safetensors"}]
    found = [
        {"id": "a/for-apples", "siblings": files, "tags": ["mlx"]},
        {"id": "a/embeds", "siblings": files, "pipeline_tag": "feature-extraction"},
        {"id": "a/sees-and-writes", "siblings": files, "pipeline_tag": "image-text-to-text"},
        {"id": "a/unlisted", "tags": ["gguf"]},
    ]
    with hostile_hub(lambda *_: as_json(found)) as served:
        hits = search(Hub(served.endpoint, tmp_path), "a")
    assert [(hit.repo, hit.format) for hit in hits] == [("a/sees-and-writes", "safetensors"), ("a/unlisted", "GGUF")]


def test_a_failing_proxy_is_a_sentence(tmp_path: Path) -> None:
    def say(*_: object) -> list[bytes]:
        return [head("502 Bad Gateway", Content_Length=0)]

    with hostile_hub(say) as served, pytest.raises(EngineError, match="does not work at the moment"):
        search(Hub(served.endpoint, tmp_path), "a")


def hit(**changes: object) -> HubHit:
    return HubHit(**{"repo": "a/b-8B", "downloads": 1, "parameters": 0, "licence": "mit", "gated": False} | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "backend", "verdict"),
    [
        (hit(format="safetensors", settings={"model_type": "qwen3"}), "native", "CPU"),
        (hit(format="safetensors", settings={"model_type": "gpt2"}), "hf", "CPU"),
        (hit(format="safetensors", settings={"model_type": "of-tomorrow"}), "hf", "no"),
        (hit(format="safetensors", settings={"model_type": ["odd"]}), "native", "CPU"),
        (hit(format="GGUF", file="m.gguf", settings={"model_type": "llama"}), "native", "CPU"),
        (hit(format="GGUF", file="m.gguf", settings={"model_type": "rwkv7"}), "gguf", "CPU"),
        (hit(format="GGUF", file="m.gguf"), "native", "CPU"),
    ],
)
def test_an_offer_tells_what_will_run_it(found: HubHit, backend: str, verdict: str) -> None:
    offer = hub_offer(HubHit(**{**vars(found), "size": GIB}), ROOMY)
    assert (offer.fit.backend, offer.fit.verdict) == (backend, verdict)
    assert hub_offer(found, ROOMY).fit.verdict == ("?" if verdict == "CPU" else "no")
    too_large = hub_offer(HubHit(**{**vars(found), "size": 900 * GIB}), ROOMY)
    assert too_large.fit.verdict == "no"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (hit(format="safetensors", settings={"model_type": "qwen2_5_vl"}), "read"),
        (hit(format="safetensors", settings={"model_type": "qwen3"}), ""),
        (hit(format="safetensors", settings={"model_type": ["odd"]}), ""),
        (hit(format="GGUF", file="m.gguf", tower="t.gguf"), "t.gguf comes with it, to read them"),
        (
            hit(format="GGUF", file="m.gguf", tower="t.gguf", settings={"model_type": "rwkv7"}),
            "not read where llama.cpp runs it",
        ),
    ],
)
def test_an_offer_tells_who_reads_pictures(found: HubHit, words: str) -> None:
    assert dict(about(hub_offer(found, ROOMY))).get("pictures", "") == words


def test_an_offer_has_the_name_that_it_will_have_here(tmp_path: Path) -> None:
    hub = Hub("http://127.0.0.1:1", tmp_path / "hub")
    file = gguf(tmp_path / "made" / "m-Q4_0.gguf")
    in_cache(hub, "a/b", file.parent)
    library = look(ModelPlaces(hub))
    (found,) = found_pairs(library).values()
    offer = hub_offer(hit(repo="a/b", format="GGUF", file="m-Q4_0.gguf"), ROOMY)
    assert (offer.pair.id, offer.pair.name, offer.pair.spec.target) == (found.id, found.name, found.spec.target)
    assert unheld((offer,), library) == ()

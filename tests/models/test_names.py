"""A name is the same pair wherever it is given, sampling as its makers say, and is found again."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.config.catalog import Catalog, Pair, SamplingSource, folder_source, load_catalog, local_pair
from specchat.config.errors import ConfigError, UnknownPair
from specchat.config.used_pairs import MAX_DESCRIPTIONS, UsedPairs
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import ModelSource, PairSpec, Server
from specchat.models.library import ModelPlaces, look
from specchat.models.machine import FreeMemory
from specchat.models.names import pair_named
from specchat.models.offers import offers, with_draft
from specchat.models.sampling import described, with_published_sampling
from tests.engine.tiny import checkpoint
from tests.models.made import gguf, in_cache, ollama

MAKERS = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
SAMPLING = Sampling(temperature=0.6, top_p=0.95, top_k=20)
ROOMY = FreeMemory(None, 1 << 36)


@pytest.fixture
def places(tmp_path: Path) -> ModelPlaces:
    """A machine with a model of every program."""
    user = tmp_path / "user"
    hub = Hub("http://127.0.0.1:1", user / "hub")
    made = checkpoint(tmp_path / "made")
    (made / "generation_config.json").write_text(json.dumps(MAKERS))
    in_cache(hub, "someone/tiny", made)
    gguf(user / "lm" / "maker" / "small" / "m.gguf", general__sampling__temp=0.6, general__sampling__top_k=20)
    ollama(
        user / "ollama",
        "tiny:1b",
        gguf(tmp_path / "made.gguf"),
        params={"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    )
    checkpoint(user / "own" / "mine")
    return ModelPlaces(hub, (user / "lm",), (user / "ollama",), (user / "own",))


@pytest.fixture
def used(tmp_path: Path) -> UsedPairs:
    return UsedPairs(tmp_path / "data" / "used.json")


CATALOG = load_catalog(None)
FOUND = {
    "someone/tiny": ("someone-tiny", SAMPLING, "generation_config.json"),
    "maker/small/m.gguf": ("maker-small-m.gguf", Sampling(temperature=0.6, top_k=20), "the file's metadata"),
    "tiny:1b": ("tiny-1b", SAMPLING, "Ollama's parameters"),
    "mine": ("mine", Sampling(), ""),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_found_model_is_the_same_pair_by_name_by_id_in_the_list_and_once_used(
    places: ModelPlaces, used: UsedPairs, name: str
) -> None:
    id_, sampling, source = FOUND[name]
    pair = pair_named(name, CATALOG, used, places)
    assert (pair.id, pair.name, pair.sampling, pair.sampling_source.name) == (id_, name, sampling, source)
    assert pair_named(id_, CATALOG, used, places) == pair
    assert [offer.pair for offer in offers(CATALOG, look(places), ROOMY) if offer.pair.id == id_] == [pair]
    used.keep(pair, chosen=True)
    assert used.last == id_
    assert used.find(id_) == pair_named(id_, CATALOG, used, places) == pair


def test_a_pair_of_a_models_toml_comes_first_and_says_itself_how_to_sample(
    places: ModelPlaces, used: UsedPairs, tmp_path: Path
) -> None:
    file = tmp_path / "models.toml"
    own = '[[pair]]\nid = "mine"\ntarget.repo = "someone/tiny"\n'
    file.write_text(
        f'schema = 1\n{own}[[pair]]\nid = "cool"\ntarget.repo = "someone/tiny"\nsampling.temperature = 0.1\n'
    )
    catalog = load_catalog(file)
    used.keep(pair_named("mine", CATALOG, used, places), chosen=True)
    mine, cool = (pair_named(name, catalog, used, places) for name in ("mine", "cool"))
    assert (mine.spec.target.repo, mine.sampling) == ("someone/tiny", SAMPLING)
    assert (cool.sampling, cool.sampling_source.name) == (Sampling(temperature=0.1), "models.toml")
    assert pair_named("demo", catalog, used, places) == CATALOG.find("demo")


def test_two_models_of_one_name_are_two_pairs(places: ModelPlaces, used: UsedPairs, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        checkpoint(tmp_path / folder / "same", num_hidden_layers=len(folder) + (folder == "two"))
    places = replace(places, own=(tmp_path / "one", tmp_path / "two"))
    same = [offer.pair for offer in offers(CATALOG, look(places), ROOMY) if offer.pair.name == "same"]
    assert len({pair.id for pair in same}) == 2
    for pair in same:
        assert pair_named(pair.id, CATALOG, used, places).spec == pair.spec


def test_a_model_with_a_draft_is_another_pair_than_the_model_alone(
    places: ModelPlaces, used: UsedPairs, tmp_path: Path
) -> None:
    for name, layers in (("big", 12), ("little", 1)):
        checkpoint(tmp_path / "both" / name, num_hidden_layers=layers)
    places = replace(places, own=(tmp_path / "both",))
    (big,) = (offer for offer in offers(CATALOG, look(places), ROOMY) if offer.pair.id == "big")
    pair = with_draft(big.pair, big.drafts.proposals[0])
    assert (pair.id, pair.name) == ("big+little", "big + little")
    used.keep(pair, chosen=False)
    assert used.last == ""
    assert pair_named("big+little", CATALOG, used, places).spec == pair.spec
    assert pair_named("big", CATALOG, used, places).spec.draft is None


def test_a_used_model_that_is_gone_is_told_unless_one_of_its_name_is_here(
    places: ModelPlaces, used: UsedPairs, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "elsewhere" / "model")
    local = local_pair(folder_source(folder), None)
    for pair in (local, pair_named("mine", CATALOG, used, places)):
        used.keep(pair, chosen=False)
    assert pair_named(local.id, CATALOG, used, places).spec == local.spec
    shutil.rmtree(folder)
    with pytest.raises(ConfigError, match=f"{folder} is not there any more: model cannot be loaded"):
        pair_named(local.id, CATALOG, used, places)
    moved = places.own[0].rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="mine is not there any more"):
        pair_named("mine", CATALOG, used, places)
    pair = pair_named("mine", CATALOG, used, replace(places, own=(moved,)))
    assert pair.spec.target.path == str(moved / "mine")
    with pytest.raises(UnknownPair, match='There is no pair "minr"'):
        pair_named("minr", CATALOG, used, places)
    with pytest.raises(ConfigError, match="local-x-1 was named by --target"):
        pair_named("local-x-1", CATALOG, used, places)


def test_the_makers_sampling_is_read_again_once_its_file_changed(places: ModelPlaces, used: UsedPairs) -> None:
    used.keep(pair_named("someone/tiny", CATALOG, used, places), chosen=True)
    file = places.hub.folder("someone/tiny") / "blobs" / "generation_config.json"
    file.write_text(json.dumps({**MAKERS, "temperature": 0.25}))
    assert pair_named("someone-tiny", CATALOG, used, places).sampling.temperature == 0.25


@pytest.mark.parametrize(
    ("config", "sampling"),
    [
        ({"temperature": 0.7}, Sampling(temperature=0.7)),
        ({"do_sample": False, "temperature": 0.7}, Sampling()),
        ({"do_sample": True}, Sampling(temperature=1.0)),
        (
            {"top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1},
            Sampling(0, 1.1, temperature=1.0, top_k=40, min_p=0.1),
        ),
        ({"do_sample": True, "temperature": None, "top_p": 7, "top_k": -1, "min_p": "x"}, Sampling(temperature=1.0)),
        ({"eos_token_id": 2}, None),
        ([1], None),
    ],
)
def test_a_generation_config_says_how_to_sample(tmp_path: Path, config: object, sampling: Sampling | None) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    bare = Pair(PairSpec("x", "x", ModelSource(path=str(tmp_path))))
    pair = with_published_sampling(bare, Hub("http://127.0.0.1:1", tmp_path))
    assert (pair.sampling, bool(pair.sampling_source.name)) == (sampling or Sampling(), sampling is not None)


def test_sampling_is_described_with_its_source() -> None:
    sampling = replace(SAMPLING, repetition_penalty=1.1)
    pair = Pair(PairSpec("x", "x", ModelSource()), sampling=sampling, sampling_source=SamplingSource("models.toml"))
    assert described(pair) == "temperature 0.6, top-k 20, top-p 0.95, repetition penalty 1.1 (models.toml)"
    assert described(Pair(pair.spec)) == "the likeliest token each time (nothing says how to sample)"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"last": 3, "pairs": [1, {"id": "x"}, {"id": "y", "target": 4}]}'])
def test_a_damaged_file_of_used_pairs_is_none(tmp_path: Path, used: UsedPairs, text: str) -> None:
    file = tmp_path / "data" / "used.json"
    file.parent.mkdir()
    file.write_text(text)
    assert (used.last, used.find("x"), used.find("y")) == ("", None, None)
    used.keep(replace(CATALOG.find("demo")), chosen=True)
    assert used.last == "demo"


def test_all_used_pairs_stay_known_however_long_their_paths_are(used: UsedPairs) -> None:
    for number in range(MAX_DESCRIPTIONS + 1):
        used.keep(Pair(PairSpec(f"own-{number}", "own", ModelSource(path="/x" * 700))), chosen=True)
    assert used.last == f"own-{MAX_DESCRIPTIONS}"
    assert len(used.all()) == MAX_DESCRIPTIONS


def test_a_server_is_no_file_that_could_be_gone(places: ModelPlaces, used: UsedPairs) -> None:
    remote = Pair(PairSpec("box", "box", ModelSource(server=Server("http://127.0.0.1:1"))), declared=True)
    assert pair_named("box", Catalog((remote,), "box"), used, places) == remote


def test_windows_that_load_at_once_lose_nothing_of_each_other(places: ModelPlaces, used: UsedPairs) -> None:
    pair = pair_named("mine", CATALOG, used, places)
    ids = [f"mine-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        each = [replace(pair, spec=replace(pair.spec, id=id_)) for id_ in ids]
        list(pool.map(lambda one: UsedPairs(used._file).keep(one, chosen=False), each))
    assert {one.id for one in used.all()} == set(ids)

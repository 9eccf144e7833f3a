"""The order of offers, the downloads of one model as one row, and drafts of another format than the target's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.config.catalog import Catalog, Pair, Requires, load_catalog
from specchat.config.errors import ConfigError
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.models import words
from specchat.models.about import About, about_folder, about_gguf
from specchat.models.drafts import OTHER_TOKENS, drafts_for
from specchat.models.library import FoundModel, Library, ModelPlaces, look
from specchat.models.machine import FreeMemory
from specchat.models.offers import grouped, offer_of, offers, variants_of
from tests.engine.tiny import checkpoint
from tests.models.made import gguf

GIB = 1 << 30
ROOMY = FreeMemory(None, 64 * GIB)
NOTHING = Library((), ())


def stated(id_: str, of: str = "", **needs: float) -> Pair:
    spec = PairSpec(id_, f"The {id_}", ModelSource(repo=f"a/{id_}"))
    return Pair(spec, variant_of=of, requires=Requires(**needs), declared=True)


def library(*abouts: About) -> Library:
    return Library(tuple(FoundModel(about, "your folder") for about in abouts), ())


def tokens_of(folder: Path) -> list[str]:
    """The tokens of a checkpoint, as a GGUF file lists them."""
    written = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    texts = {number: text for text, number in written["model"]["vocab"].items()}
    texts |= {added["id"]: added["content"] for added in written["added_tokens"]}
    return [texts[number] for number in range(len(texts))]


@pytest.mark.parametrize(
    ("gpu", "memory", "first"),
    [(None, 64, "small"), (None, 6, "tight"), (None, 1, "small"), (16, 64, "whole"), (None, None, "small")],
)
def test_the_smallest_download_that_fits_stands_for_all_of_a_model(
    gpu: int | None, memory: int | None, first: str
) -> None:
    pairs = (
        stated("whole", ram_gib=20, vram_gib=10, disk_gib=16),
        stated("small", "whole", ram_gib=9, vram_gib=19, disk_gib=5),
        stated("tight", "whole", ram_gib=4, disk_gib=7),
        stated("other", ram_gib=1, disk_gib=1),
    )
    machine = FreeMemory(gpu and gpu * GIB, memory and memory * GIB)
    listed = offers(Catalog(pairs, "whole"), NOTHING, machine)
    rows = [row for row in grouped(listed) if row.pair.id != "other"]
    assert [row.pair.id for row in rows] == [first]
    assert {other.pair.id for other in rows[0].variants} == {"whole", "small", "tight"} - {first}
    assert len(listed) == 4
    said = [text for name, text in words.about(rows[0]) if name == "or"]
    assert [text.partition(",")[0] for text in said] == [other.pair.id for other in rows[0].variants]


def test_a_pair_knows_its_variants_by_any_of_them() -> None:
    catalog = Catalog((stated("whole"), stated("a", "whole"), stated("b", "whole"), stated("other")), "whole")
    for id_ in ("whole", "a", "b"):
        others = variants_of(catalog.find(id_), catalog, NOTHING, ROOMY)
        assert {other.pair.id for other in others} == {"whole", "a", "b"} - {id_}
    assert variants_of(catalog.find("other"), catalog, NOTHING, ROOMY) == ()


def test_a_variant_of_nothing_is_refused_and_an_alias_is_one(tmp_path: Path) -> None:
    def read(id_: str, of: str) -> Catalog:
        file = tmp_path / "models.toml"
        file.write_text(f'schema = 1\n[[pair]]\nid = "{id_}"\nvariant_of = "{of}"\ntarget = {{ repo = "a/b" }}\n')
        return load_catalog(file)

    with pytest.raises(ConfigError, match=r'variant_of = "qwen3-8" is no other pair\. Did you mean "qwen3-8b"'):
        read("mine", "qwen3-8")
    with pytest.raises(ConfigError, match='variant_of = "mine" is no other pair'):
        read("mine", "mine")
    assert read("mine", "llama").find("mine").variant_of == "llama-3.1-8b"


def test_of_what_was_found_the_best_for_this_machine_comes_first(tmp_path: Path) -> None:
    for name, layers in (("a-small", 1), ("b-large", 8), ("c-middle", 4)):
        checkpoint(tmp_path / "own" / name, num_hidden_layers=layers)
    settings = checkpoint(tmp_path / "own" / "d-foreign", num_hidden_layers=12) / "config.json"
    settings.write_text(settings.read_text().replace('"llama"', '"gpt2"'))
    found = look(ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "hub"), own=(tmp_path / "own",)))
    order = [offer.pair.id for offer in offers(Catalog((), ""), found, ROOMY)]
    assert order == ["b-large", "c-middle", "a-small", "d-foreign"]


def test_models_that_write_slower_than_one_reads_follow_by_their_speed(tmp_path: Path) -> None:
    sizes = {"huge": 8.0, "large": 4.0, "fluent": 1.0, "tiny": 0.5}
    found = []
    for name, gib in sizes.items():
        about = about_gguf(gguf(tmp_path / "snapshots" / "0" / f"{name}.gguf"), name)
        found.append(FoundModel(replace(about, size=int(gib * GIB)), "Hugging Face", f"a/{name}"))
    machine = FreeMemory(None, 64 * GIB, rates={"cpu": 20.0 * GIB})
    order = [offer.pair.name for offer in offers(Catalog((), ""), Library(tuple(found), ()), machine)]
    assert order == ["fluent", "tiny", "large", "huge"]


def test_a_target_that_is_here_without_its_draft_is_listed_as_here(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "own" / "big")
    spec = PairSpec("pair", "Big + small", ModelSource(path=str(folder)), ModelSource(repo="a/small"))
    found = look(ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "hub"), own=(tmp_path / "own",)))
    listed = offers(Catalog((Pair(spec, declared=True),), "pair"), found, ROOMY)
    assert [(offer.pair.id, bool(offer.missing)) for offer in listed] == [("big", False), ("pair", True)]


@pytest.mark.parametrize("same", [True, False])
def test_a_draft_is_offered_whatever_its_format_and_its_cost_is_told(tmp_path: Path, same: bool) -> None:
    big, small = checkpoint(tmp_path / "big", num_hidden_layers=12), checkpoint(tmp_path / "small", num_hidden_layers=1)
    tokens = tokens_of(big) if same else [*tokens_of(big)[:-1], "<|else|>"]
    tensors = {"big": about_folder(big, "big"), "small": about_folder(small, "small")}
    cost = "" if same else OTHER_TOKENS
    for target, draft in (("big", "small.gguf"), ("big.gguf", "small")):
        name = next(name for name in (target, draft) if name.endswith(".gguf"))
        model = tensors[name.removesuffix(".gguf")]
        file = gguf(tmp_path / name, tokens=tokens)
        written = replace(about_gguf(file, name), config=model.config, foreign="", parameters=model.parameters)
        abouts = {**tensors, name: written}
        drafts = drafts_for(abouts[target], library(abouts[target], abouts[draft]))
        assert [(one.name, one.cost) for one in drafts.proposals] == [(draft, cost)]
        spec = PairSpec("p", "P", *(ModelSource(path=str(abouts[one].place)) for one in (target, draft)))
        told = dict(words.about(offer_of(Pair(spec), NOTHING, ROOMY)))["draft"]
        assert told == f"{abouts[draft].place}{f', {cost}' if cost else ''}"


def test_a_draft_that_is_too_large_is_named_once(tmp_path: Path) -> None:
    one, two = (about_folder(checkpoint(tmp_path / name), name) for name in ("one", "two"))
    pair = Pair(PairSpec("one", "one", ModelSource(path=str(one.place))))
    facts = dict(words.about(offer_of(pair, library(one, two), ROOMY)))
    assert facts["cannot draft"] == "two: it is too large (1.0x this model's size)."

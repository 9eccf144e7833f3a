"""Models that are on the disk: found in every program's folder, and named in a sentence where they cannot be read."""

import json
import os
import random
import resource
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from specchat.config.catalog import load_catalog
from specchat.engine.errors import ModelError
from specchat.engine.fetch.source import Hub
from specchat.engine.gguf.header import read_header
from specchat.models.about import about_folder, about_gguf
from specchat.models.fit import fit
from specchat.models.library import FoundModel, Library, ModelPlaces, look, usual_places
from specchat.models.machine import FreeMemory, this_machine
from specchat.models.offers import found_pair, offers, strategies
from tests.engine.tiny import checkpoint
from tests.models.made import ARCHITECTURE, TOKENS, gguf, in_cache, no_home, ollama

ROOT = Path(__file__).parents[2]


@pytest.fixture
def places(tmp_path: Path) -> ModelPlaces:
    return ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "hub"), (tmp_path / "lm",), (tmp_path / "ollama",), ())


def set_config(folder: Path, **values: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def names(library: Library) -> list[tuple[str, str, str]]:
    return [(found.about.name, found.about.format, found.origin) for found in library.models]


def test_every_programs_models_are_found(places: ModelPlaces, tmp_path: Path) -> None:
    in_cache(places.hub, "someone/tiny", checkpoint(tmp_path / "made"))
    gguf(tmp_path / "lm" / "maker" / "Tiny-GGUF" / "tiny-Q8_0.gguf")
    ollama(
        places.ollama[0], "tiny:1b", gguf(tmp_path / "made.gguf", general__name="Other"), licence="\nMIT License\nwords"
    )  # type: ignore[arg-type]
    checkpoint(tmp_path / "own" / "mine")
    own = ModelPlaces(places.hub, places.lm_studio, places.ollama, (tmp_path / "own",))
    library = look(own)
    assert library.problems == ()
    assert names(library) == [
        ("maker/Tiny-GGUF/tiny-Q8_0.gguf", "GGUF", "LM Studio"),
        ("mine", "safetensors", "your folder"),
        ("someone/tiny", "safetensors", "Hugging Face"),
        ("tiny:1b", "GGUF", "Ollama"),
    ]
    (found,) = (found for found in library.models if found.repo == "someone/tiny")
    assert (found.about.architecture, found.about.layers, found.about.context) == ("llama", 4, 256)
    assert found.about.parameters == found.about.config.parameters()  # type: ignore[union-attr]
    assert found.about.size == (found.about.place / "model.safetensors").stat().st_size
    assert library.models[0].about.licence == "mit"


def test_nothing_anywhere_is_nothing_found(places: ModelPlaces) -> None:
    assert look(places) == Library((), ())


def test_the_usual_places_are_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_home(monkeypatch, tmp_path)
    own, service = tmp_path / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")
    assert usual_places(Hub("x", tmp_path)).ollama == (own,)  # as all tests have it
    monkeypatch.delenv("OLLAMA_MODELS")
    usual = usual_places(Hub("x", tmp_path), ["~/models"])
    assert usual.lm_studio[0] == tmp_path / ".lmstudio" / "models"
    assert usual.ollama == (own, service)
    assert usual.own == (tmp_path / "models",)
    assert usual_places(Hub("x", tmp_path), environ={"OLLAMA_MODELS": "/other"}).ollama == (Path("/other"),)


def test_a_model_in_two_places_is_told_once(places: ModelPlaces, tmp_path: Path) -> None:
    snapshot = in_cache(places.hub, "someone/tiny", checkpoint(tmp_path / "made"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "link").symlink_to(snapshot)
    assert len(look(ModelPlaces(places.hub, own=(tmp_path / "own", snapshot))).models) == 1


# What cannot be read


def test_a_link_that_leads_nowhere_is_reported(places: ModelPlaces, tmp_path: Path) -> None:
    snapshot = in_cache(places.hub, "someone/tiny", checkpoint(tmp_path / "made"))
    (places.hub.folder("someone/tiny") / "blobs" / "model.safetensors").unlink()
    assert not (snapshot / "model.safetensors").exists()
    library = look(places)
    assert library.models == ()
    assert len(library.problems) == 1
    assert "tiny" in library.problems[0]
    assert "\n" not in library.problems[0]


def test_a_manifest_of_another_version_is_reported(places: ModelPlaces, tmp_path: Path) -> None:
    ollama(places.ollama[0], "new:1b", gguf(tmp_path / "a.gguf"), version=3)
    ollama(places.ollama[0], "good:1b", gguf(tmp_path / "b.gguf", general__name="B"))
    library = look(places)
    assert [found.about.name for found in library.models] == ["good:1b"]
    assert library.problems[0].startswith("Ollama's new:1b: ")
    assert library.problems[0].endswith("is a manifest of version 3, and only 2 is read.")


def test_a_folder_of_ollama_that_cannot_be_read_is_reported(
    places: ModelPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("someone/tiny:1b", "good:1b"):
        ollama(places.ollama[0], name, gguf(tmp_path / "a.gguf", general__name=name))
    scandir = os.scandir

    def scanned(path: str) -> Any:
        if os.fspath(path).endswith("someone"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanned)
    library = look(places)
    assert [found.about.name for found in library.models] == ["good:1b"]
    assert len(library.problems) == 1
    assert library.problems[0].endswith("/someone cannot be read (Permission denied).")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "does not hold a JSON object"),
        ('{"schemaVersion": 2}', "names no weights"),
        ('{"schemaVersion": 2, "layers": [{"mediaType": "m", "digest": "sha256:../../x"}]}', "names no weights"),
        ('{"schemaVersion": 2, "layers": [{"mediaType": 3}, 7]}', "not a list of layers"),
        ('{"schemaVersion": [2], "layers": []}', "schemaVersion is [2], not a whole number"),
        (
            json.dumps(
                {
                    "schemaVersion": 2,
                    "layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{'0' * 64}"}],
                }
            ),
            "is missing, or a link that leads nowhere",
        ),
    ],
)
def test_broken_manifests_are_reported(places: ModelPlaces, manifest: str, words: str) -> None:
    path = places.ollama[0] / "manifests" / "registry.ollama.ai" / "library" / "x" / "latest"
    path.parent.mkdir(parents=True)
    path.write_text(manifest)
    library = look(places)
    assert library.models == ()
    assert words in library.problems[0]


def test_folders_that_are_not_there_or_not_readable_are_reported(places: ModelPlaces, tmp_path: Path) -> None:
    library = look(ModelPlaces(places.hub, own=(tmp_path / "nowhere",)))
    assert library.problems == (f"{tmp_path / 'nowhere'}, of model_folders, is not a folder.",)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read as JSON"),
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors, nor an index"),
        (
            lambda f: (f / "model.safetensors").rename(f / "model-00001-of-00002.safetensors"),
            "has no model.safetensors, nor an index",
        ),
        (
            lambda f: (
                (f / "model.safetensors").unlink(),
                (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}'),
            ),
            "has not all weights that its index names",
        ),
        (
            lambda f: set_config(f, num_hidden_layers=40),
            "has weights of 4 layers, and its config.json states 40",
        ),
    ],
)
def test_checkpoints_that_are_not_whole_are_reported(spoil: object, words: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(ModelError) as caught:
        about_folder(folder, "x")
    assert words in caught.value.message


def test_an_architecture_that_transformers_runs_is_described_all_the_same(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    set_config(folder, model_type="stablelm")
    about = about_folder(folder, "x")
    assert (about.architecture, about.config, about.layers) == ("stablelm", None, 4)
    assert about.foreign
    assert about.parameters > 100_000
    pair = found_pair(FoundModel(about, "folder"))
    assert (pair.spec.backend, pair.unsupported) == ("hf", "")
    roomy, tight = (fit(pair, about, None, FreeMemory(None, memory)) for memory in (4 << 30, 1 << 20))
    assert (roomy.verdict, tight.verdict) == ("CPU", "no")
    assert roomy.words.startswith("run by transformers; takes about 1.0 GiB")
    assert fit(pair, about, None, FreeMemory(4 << 30, 1 << 20)).verdict == "GPU"
    assert {"draft-tree", "lookahead", "early-exit", "swift"}.isdisjoint(strategies(pair, about, "hf"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_type": "gpt9"}, "does not know model_type 'gpt9'"),
        ({}, "it has no model_type"),
        ({"model_type": "clip", "architectures": ["CLIPModel"]}, "model_type 'clip' is none that writes text"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertModel is no model that writes text"),
    ],
)
def test_a_model_that_transformers_cannot_run_is_not_offered(
    settings: dict[str, object], words: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(settings))
    about = about_folder(folder, "x")
    pair = found_pair(FoundModel(about, "folder"))
    assert words in pair.unsupported
    assert not about.foreign
    assert fit(pair, about, None, FreeMemory(None, 4 << 30)).verdict == "no"
    (folder / "config.json").write_text(json.dumps(settings | {"auto_map": {}}))
    assert about_folder(folder, "x").foreign  # programs of its own may run it


# GGUF headers


def test_a_header_tells_what_the_model_is(tmp_path: Path) -> None:
    about = about_gguf(gguf(tmp_path / "m.gguf"))
    assert (about.name, about.architecture, about.quant, about.licence) == ("Tiny", ARCHITECTURE, "Q8_0", "mit")
    assert (about.parameters, about.layers, about.context) == (64 * 32 + 64 * 64, 2, 512)
    same = about_gguf(gguf(tmp_path / "n.gguf", general__name="Other", tensors={"a": ((8,), 0)}))
    assert same.tokens == about.tokens
    assert about_gguf(gguf(tmp_path / "o.gguf", tokens=(*TOKENS[:-1], "ba"))).tokens != about.tokens


def test_the_header_of_a_real_file_is_read() -> None:
    path = ROOT.parent / "shared" / "data" / "checkpoints" / "stories260K-f32.gguf"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    about = about_gguf(path)
    assert about.architecture == "llama"
    assert 200_000 < about.parameters < 320_000
    assert about.quant == "F32"


def test_split_files_are_one_model_or_a_sentence(tmp_path: Path) -> None:
    first = gguf(tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(ModelError, match="1 of 2 parts are missing"):
        about_gguf(first)
    gguf(tmp_path / "m-00002-of-00002.gguf", tensors={"z": ((64, 100), 8)})
    assert about_gguf(first).parameters == 64 * 32 + 64 * 64 + 64 * 100
    assert [found.about.place for found in look(ModelPlaces(Hub("x", tmp_path / "hub"), (tmp_path,))).models] == [first]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"version": 1}, "version 1 of the format is none that is read"),
        ({"version": 0x03000000}, "of the format is none that is read"),
        ({"general__type": "adapter"}, "holds no model but adapter for one"),
    ],
)
def test_files_that_are_no_models_are_reported(keys: dict[str, object], words: str, tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", **keys)  # type: ignore[arg-type]
    with pytest.raises(ModelError) as caught:
        about_gguf(path)
    assert words in caught.value.message


def test_a_file_that_is_cut_off_anywhere_is_a_sentence(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf")
    data = path.read_bytes()
    for length in [*range(0, 700, 3), len(data) - 4097]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            read_header(path)


@pytest.mark.parametrize("seed", range(40))
def test_headers_with_other_bytes_are_read_or_refused_in_a_sentence(seed: int, tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf")
    draw, data = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(60):
        spoiled = bytearray(data)
        for _ in range(draw.randrange(1, 6)):
            spoiled[draw.randrange(4, 420)] = draw.choice((0, 1, 9, 127, 255, draw.randrange(256)))
        path.write_bytes(spoiled)
        with suppress(ModelError):
            about_gguf(path)


def raw_gguf(path: Path, *values: bytes, size: int = 0) -> Path:
    """A file of metadata alone, with zeros behind it up to `size`, which take no room on the disk."""
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(values))
        file.truncate(max(size, file.tell()))
    return path


def metadata(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def listed(kind: int, length: int) -> bytes:
    return struct.pack("<IQ", kind, length)


WITHOUT_BOUND = {
    "10^8 texts": ((metadata("a", 9, listed(8, 10**8)),), "a list of 100,000,000 texts"),
    "3 million texts": ((metadata("a", 9, listed(8, 3 * 10**6)),), "a list of 3,000,000 texts"),
    "many long texts": (
        tuple(metadata(f"k{n}", 8, struct.pack("<Q", 1 << 24) + bytes(1 << 12)) for n in range(3)),
        "as a kind|letters|as a text|header",
    ),
    "a text of 1 GiB": ((metadata("a", 8, struct.pack("<Q", 1 << 30)),), "letters in one text"),
    "a list of 1 GiB": ((metadata("a", 9, listed(0, 1 << 30)),), "its header has more than 256 MB"),
    "a list of lists": ((metadata("a", 9, listed(9, 1 << 30)),), "a list of lists"),
    "no number": ((metadata("a", 6, struct.pack("<f", float("nan"))),), "its a is nan"),
    "without end": ((metadata("a", 12, struct.pack("<d", float("-inf"))),), "its a is -inf"),
    "a key twice": ((metadata("a", 0, b"1"), metadata("a", 0, b"2")), "it has a twice"),
}


@pytest.mark.parametrize("name", WITHOUT_BOUND)
def test_headers_without_bound_are_left(name: str, tmp_path: Path) -> None:
    values, words = WITHOUT_BOUND[name]
    path = raw_gguf(tmp_path / "m.gguf", *values, size=2 << 30)
    with pytest.raises(ModelError, match=words):
        read_header(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(ModelError):
        about_gguf(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


def test_texts_that_nobody_asks_for_are_not_kept(tmp_path: Path) -> None:
    long = struct.pack("<Q", 1 << 24) + bytes(1 << 24)
    path = raw_gguf(tmp_path / "m.gguf", *[metadata(f"k{n}", 8, long) for n in range(4)])
    assert set(read_header(path).values.values()) == {""}


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": ["llama"]}, {"model_type": {"a": 1}}, {"model_type": 7}, {"model_type": "llama"},
        {"model_type": "llama", "quantization_config": [1]}, {"model_type": "x", "text_config": [1]},
        {"model_type": "llama", "dtype": {"a": 1}}, {"model_type": "llama", "rope_scaling": {"rope_type": [1]}},
        {"model_type": "\ud800"},
    ],
)  # fmt: skip
def test_a_broken_model_does_not_hide_the_others(settings: object, places: ModelPlaces, tmp_path: Path) -> None:
    gguf(tmp_path / "lm" / "maker" / "Tiny-GGUF" / "tiny-Q8_0.gguf")
    broken = checkpoint(tmp_path / "lm" / "maker" / "broken")
    (broken / "config.json").write_text(json.dumps(settings))
    library = look(places)
    assert "tiny-Q8_0" in " ".join(found.about.name for found in library.models)
    assert len(library.models) + len(library.problems) == 2
    offers(load_catalog(None), library, this_machine())


def test_a_surprise_of_one_model_does_not_hide_the_others(
    places: ModelPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf(tmp_path / "lm" / "maker" / "Tiny-GGUF" / "tiny-Q8_0.gguf")
    checkpoint(tmp_path / "lm" / "maker" / "broken")

    def surprised(*_: object) -> None:
        raise IndexError("no\nsuch\x1b thing")

    monkeypatch.setattr("specchat.models.library.about_folder", surprised)
    library = look(places)
    assert len(library.models) == 1
    assert library.problems[0].endswith("broken cannot be read: IndexError: no such␛ thing.")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_in_the_place_of_a_licence_is_not_opened(places: ModelPlaces, tmp_path: Path) -> None:
    ollama(places.ollama[0], "tiny:1b", gguf(tmp_path / "made.gguf", general__license=""), licence="MIT")
    blob = next(path for path in (places.ollama[0] / "blobs").iterdir() if path.read_bytes() == b"MIT")
    blob.unlink()
    os.mkfifo(blob)
    assert [found.about.licence for found in look(places).models] == [""]

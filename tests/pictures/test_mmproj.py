"""Towers in files of llama.cpp see what those of folders see."""

from hashlib import sha256
from pathlib import Path

import pytest
import torch

from specchat.engine.errors import EngineError
from specchat.engine.gguf.ollama import blobs_with
from specchat.engine.pictures.files import most_tokens, tower_values
from specchat.engine.pictures.tower import Tower
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.models.about import about_folder, about_gguf
from tests.engine.test_lossless import finished
from tests.engine.tiny import on_cpu
from tests.models.made import ollama as put
from tests.pictures import ollama
from tests.pictures.conftest import unmeasured
from tests.pictures.test_pictures import ASKED, TWO
from tests.pictures.test_refused import refused
from tests.pictures.towers import FAMILIES, made, text, written

pytestmark = pytest.mark.needs_gguf
OLLAMA = {
    "gemma3": {
        "max_position_embeddings": 1 << 17,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        },
    }
}
"""Settings of texts that its files leave out, as published models have them."""
STRATEGIES = "lookup", "suffix", "ngram", "swift", "auto"


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(request.param, tmp_path_factory.mktemp(request.param) / request.param)


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the model's text, and beside it one of its tower and one of another model's."""
    file = tmp_path_factory.mktemp("files") / "tiny-f32.gguf"
    text(folder, file)
    written(folder, file.with_name("mmproj-tiny-f16.gguf"))
    written(folder, file.with_name("mmproj-tiny-f32.gguf"), **{"clip.vision.projection_dim": 32})
    return file


def opened(path: Path) -> Session:
    session = unmeasured(PairSpec("p", "Tiny", on_cpu(path)))
    assert session.info.sees
    return session


def same(folder: Path, file: Path) -> None:
    """Check that a folder and a file see the same, and that drafts change no text of the file."""
    of_folder, of_file = opened(folder), opened(file)
    tokens = [one._prompts.prompt(Generate(1, ASKED)).tokens for one in (of_folder, of_file)]
    assert tokens[0] == tokens[1]
    seen = list[torch.Tensor](), list[torch.Tensor]()
    for one, into in zip((of_folder, of_file), seen, strict=True):
        list(one.album.look(TWO, into))
        one.album.hold(tokens[0])
    for rows, theirs in zip(*seen, strict=True):
        torch.testing.assert_close(rows, theirs, atol=1e-5, rtol=1e-5)
    logits = [one.target.next_logits(tokens[0]) for one in (of_folder, of_file)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)
    strategy = STRATEGIES[list(FAMILIES).index(folder.name) % len(STRATEGIES)]
    requests = [Generate(1, ASKED, limits=Limits(8), speculation=Speculation.of(one)) for one in ("plain", strategy)]
    plain, drafted = (finished(list(of_file.generate(request))).token_ids for request in requests)
    assert plain == drafted
    assert plain == finished(list(of_folder.generate(requests[0]))).token_ids


def test_it_sees_what_the_folder_sees(folder: Path, file: Path) -> None:
    same(folder, file)
    where = about_folder(folder, "x").pictures
    assert where == "read"
    assert about_gguf(file).pictures == f"{where}, by mmproj-tiny-f16.gguf"
    assert tower_values(Checkpoint.open(file)) == tower_values(Checkpoint.open(folder))
    assert most_tokens(Checkpoint.open(file)) == most_tokens(Checkpoint.open(folder)) == 16 * (folder.name == "gemma4")


@pytest.mark.parametrize("kind", ollama.KINDS)
def test_ollamas_files_with_text_and_tower_see_what_the_folder_sees(kind: str, tmp_path: Path) -> None:
    folder, file = made(kind, tmp_path / kind, **OLLAMA.get(kind, {})), tmp_path / "sha256-0"
    ollama.whole(folder, file)
    same(folder, file)
    assert about_gguf(file).pictures == about_folder(folder, "x").pictures


def test_ollamas_blob_of_a_projector_is_the_tower_of_its_model(folder: Path, file: Path, tmp_path: Path) -> None:
    tower = written(folder, tmp_path / "tower.gguf")
    for name, projector in (("other", None), ("tiny", tower)):
        put(tmp_path / "ollama", f"{name}:1b", file, projector=projector)
        blob = blobs_with(tmp_path / "ollama" / "blobs" / f"sha256-{sha256(file.read_bytes()).hexdigest()}")
        checkpoint = Checkpoint.open(blob["model"])
        assert (checkpoint.mmproj and checkpoint.mmproj.path) == blob.get("projector")
        assert checkpoint.also_sees == (projector is not None)
        (tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / name / "1b").unlink()


@pytest.mark.parametrize("kind", ["gemma3", "qwen2_vl"])
def test_files_of_older_converters_name_the_products_of_an_mlp_the_other_way(kind: str, tmp_path: Path) -> None:
    rows, folder = [], made(kind, tmp_path / kind)
    for exchanged in (False, True):
        file = tmp_path / str(exchanged) / "tiny.gguf"
        file.parent.mkdir()
        text(folder, file)
        written(folder, file.with_name("mmproj.gguf"), exchanged=exchanged)
        checkpoint = Checkpoint.open(file)
        tower = Tower(checkpoint, checkpoint.tokenizer().vocabulary)
        rows.append(tower.rows(tower.processed(TWO[0].data)))
    assert torch.equal(*rows)


def test_a_file_whose_numbers_or_tensors_do_not_do(folder: Path, file: Path, tmp_path: Path) -> None:
    for key, value, words in (("patch_size", 0, "patch_size is missing"), ("embedding_length", 48, "size mismatch")):
        other = tmp_path / key / "tiny.gguf"
        other.parent.mkdir()
        other.symlink_to(file)
        written(folder, other.with_name("mmproj.gguf"), **{f"clip.vision.{key}": value})
        with pytest.raises(EngineError, match=rf"mmproj\.gguf: .*{words}"):
            list(opened(other).generate(Generate(1, ASKED, limits=Limits(2))))


def test_without_a_tower_that_is_read_text_alone_is(file: Path, folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "tiny.gguf"
    alone.symlink_to(file)

    def refuses(words: str) -> None:
        session = unmeasured(PairSpec("p", "Tiny", on_cpu(alone)))
        assert not session.info.sees
        refused(session, words)

    assert about_gguf(alone).pictures == ""
    refuses("^Tiny has no part that reads pictures")
    written(folder, tmp_path / "mmproj.gguf", **{"clip.vision.projector_type": "internvl"})
    refuses("^Tiny reads text alone here, as specchat does not read pictures by internvl, the projector of mmproj.gguf")
    assert about_gguf(alone).pictures == "not read: internvl, the projector of mmproj.gguf, is unknown here"

"""Damaged GGUF files: a sentence that names the file, in the list of models as where they are loaded."""

import os
import struct
from pathlib import Path

import pytest

from specchat.engine.errors import ModelError
from specchat.engine.fetch.source import Hub
from specchat.engine.gguf.cursor import HeaderCursor
from specchat.engine.gguf.header import read_header
from specchat.engine.llama_cpp.export import export
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights
from specchat.models.about import about_gguf
from specchat.models.library import ModelPlaces, look
from specchat.models.offers import found_pair
from tests.engine.tiny import checkpoint
from tests.llama_cpp.conftest import byte_tokenizer

pytestmark = pytest.mark.needs_gguf


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound file with a tokenizer, its matrices in Q8_0."""
    folder = tmp_path_factory.mktemp("sound")
    model = checkpoint(folder / "model", backend=byte_tokenizer(), num_key_value_heads=2, intermediate_size=256)
    export(Checkpoint.open(model), folder / "x.gguf", "q8_0")
    return (folder / "x.gguf").read_bytes()


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def with_value(data: bytes, key: str, value: bytes) -> bytes:
    """The file with another value of the same size at a key."""
    at = data.index(text(key)) + len(text(key)) + 4
    return data[:at] + value + data[at + len(value) :]


def found(folder: Path) -> tuple[list[str], list[str]]:
    """The reasons why models of a folder cannot run, one a model, and the problems."""
    library = look(ModelPlaces(Hub("http://127.0.0.1:1", folder / "none"), own=(folder,)))
    return [found_pair(one).unsupported for one in library.models], list(library.problems)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("general.architecture", struct.pack("<Q", 1 << 63), "letters in one text"),
        ("tokenizer.ggml.tokens", struct.pack("<IQ", 8, 1 << 63), "entries in one list"),
        ("tokenizer.ggml.tokens", struct.pack("<IQ", 9, 1), "a list of lists"),
        ("tokenizer.ggml.merges", struct.pack("<IQ", 99, 1), "as a kind"),
        ("llama.attention.layer_norm_rms_epsilon", struct.pack("<f", float("nan")), "is nan"),
    ],
)
def test_a_damaged_header_does_not_hide_other_models(
    data: bytes, tmp_path: Path, key: str, value: bytes, words: str
) -> None:
    (tmp_path / "a.gguf").write_bytes(with_value(data, key, value))
    (tmp_path / "b.gguf").write_bytes(data)
    reasons, problems = found(tmp_path)
    assert reasons == [""]
    assert len(problems) == 1
    assert problems[0].startswith(f"{tmp_path / 'a.gguf'} is damaged: ")
    assert words in problems[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (text("tokenizer.ggml.merges"), text("tokenizer.ggml.mergez"), "tokenizer.ggml.merges is missing or empty"),
        (text("tokenizer.ggml.tokens"), text("tokenizer.ggml.tokenz"), "tokenizer.ggml.tokens is missing or empty"),
        (text("tokenizer.ggml.model"), text("tokenizer.ggml.modez"), "holds no tokenizer"),
        (text("tokenizer.ggml.pre"), text("tokenizer.ggml.prz"), "does not name its pre-tokenizer"),
        (text("blk.1.attn_norm.weight"), text("blk.1.attn_norx.weight"), r"blk\.1\.attn_norx\.weight"),
    ],
)
def test_what_a_file_lacks_is_told_in_the_list_and_where_it_is_loaded(
    data: bytes, tmp_path: Path, old: bytes, new: bytes, words: str
) -> None:
    assert old in data
    path = tmp_path / "x.gguf"
    path.write_bytes(data.replace(old, new, 1))
    about = about_gguf(path)
    with pytest.raises(ModelError, match=words) as caught:
        Checkpoint.open(path).tokenizer()
    assert str(path) in caught.value.message
    assert about.config is None
    assert (about.why_not or about.foreign) in caught.value.message


def test_an_unknown_pre_tokenizer_is_told_by_name_with_a_choice(data: bytes, tmp_path: Path) -> None:
    at = data.index(text("tokenizer.ggml.pre")) + len(text("tokenizer.ggml.pre")) + 4
    (known,) = struct.unpack_from("<Q", data, at)
    path = tmp_path / "x.gguf"
    path.write_bytes(data[: at + 8] + b"z" * known + data[at + 8 + known :])
    reason = about_gguf(path).why_not
    assert reason.startswith(f"tokenizer.ggml.pre is '{'z' * known}', which is not read here. Run it by llama.cpp")


def test_an_invented_number_of_layers_is_told_at_once(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(with_value(data, "llama.block_count", struct.pack("<I", 999)))
    with pytest.raises(ModelError, match="has no tensors of layer 4, of 999 that its header states"):
        Checkpoint.open(tmp_path / "x.gguf")


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_that_is_no_number_is_told_by_its_matrix(data: bytes, tmp_path: Path, scale: float) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    at = read_header(path).tensors["blk.1.ffn_down.weight"].offset + 3 * 34
    path.write_bytes(data[:at] + struct.pack("<e", scale) + data[at + 2 :])
    with (
        Weights(Checkpoint.open(path)) as weights,
        pytest.raises(ModelError, match=r"layers\.1\.mlp\.down_proj has scales"),
    ):
        weights.linear("model.layers.1.mlp.down_proj", 64, 256)


def test_a_file_cut_anywhere_is_a_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for size in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:size])
        with pytest.raises(ModelError, match=r"no GGUF file|ends in its header|is cut off|cannot be read"):
            Checkpoint.open(path)


def test_a_header_whose_file_shrinks_meanwhile_is_a_sentence(data: bytes, tmp_path: Path) -> None:
    """Reading what a mapped file no longer has would end the app."""
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with open(path, "rb") as file:
        cursor = HeaderCursor(file)
        os.truncate(path, 10)
        with pytest.raises(ValueError, match="it changed while it was read"):
            cursor.number("<Q")

"""Headers of GGUF files: tensors within the file and beside each other, lists within bounds, damage in a sentence."""

import random
import resource
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from measure.random_gguf import write
from specchat.engine.errors import ModelError
from specchat.engine.gguf.header import read_header
from specchat.engine.gguf.keys import shortest
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.gguf import GgufCheckpoint
from specchat.engine.weights.weights import Weights
from tests.engine.tiny import FAMILIES, checkpoint
from tests.models.made import gguf

SHAPE, F32, Q4_K = (256, 4), 0, 12
ROW = "<I2QIQ"
"""Dimensions, a shape of two, type and offset of a tensor in the table."""


def changed(path: Path, name: str, *, kind: int = F32, shape: tuple[int, int] = SHAPE, offset: int = 0) -> Path:
    """The file with another entry for a tensor of two dimensions in its table."""
    data, key = bytearray(path.read_bytes()), struct.pack("<Q", len(name)) + name.encode()
    begin = data.index(key) + len(key)
    data[begin : begin + struct.calcsize(ROW)] = struct.pack(ROW, 2, *shape, kind, offset)
    path.write_bytes(data)
    return path


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A file of two tensors of 4096 bytes."""
    return gguf(tmp_path / "m.gguf", {"one": (SHAPE, F32), "two": (SHAPE, F32)}, a=[f"t{n}" for n in range(5)])


def test_the_table_says_where_tensors_are(two: Path) -> None:
    header = read_header(two)
    one, other = header.tensors["one"], header.tensors["two"]
    assert (one.shape, one.type, one.bytes) == ((4, 256), "F32", 4096)
    assert other.offset == one.offset + 4096
    assert other.offset + other.bytes <= two.stat().st_size
    assert header.types == {"F32": 2048}
    assert header.entries("a") == [f"t{n}" for n in range(5)]
    assert header.entries("b") == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"offset": 2048}, "begins within another"),
        ({"offset": 33}, "does not begin at a multiple of 32 bytes"),
        ({"offset": 1 << 40}, "is cut off"),
        ({"offset": 1 << 62}, "is cut off"),
        ({"offset": (1 << 62) + 32}, "it says it has"),
        ({"shape": (1 << 41, 1)}, "it says it has"),
        ({"shape": (1 << 40, 1 << 40)}, "begins within another|is cut off"),
        ({"shape": (200, 4), "kind": Q4_K}, "no whole blocks of 256"),
        ({"kind": 1 << 17}, "as a type"),
    ],
)
def test_tensors_that_cannot_be_are_a_sentence(entry: dict[str, object], words: str, two: Path) -> None:
    with pytest.raises(ModelError, match=words):
        read_header(changed(two, "two", **{"offset": 4096, **entry}))  # type: ignore[arg-type]


def test_a_type_that_is_not_known_is_named_and_not_read(two: Path) -> None:
    header = read_header(changed(two, "two", kind=99, offset=4096))
    assert (header.tensors["two"].type, header.tensors["two"].bytes) == ("type 99", 0)


def test_a_list_is_read_when_it_is_asked_for_and_not_beyond_bounds(two: Path, tmp_path: Path) -> None:
    header = read_header(two)
    two.write_bytes(two.read_bytes()[:100])
    with pytest.raises(ModelError, match="ends in its header"):
        header.entries("a")
    many = tmp_path / "many.gguf"
    entry = struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 0, 3 << 20)
    with open(many, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
        file.truncate(8 << 20)
    with pytest.raises(ModelError, match="has 3,145,728 entries"):
        read_header(many).entries("a")


@pytest.mark.parametrize("value", [1e-6, 1.5625e-7, 10_000.0, 5e5, 0.0625, 1e30, 0.25, 3.0])
def test_numbers_have_the_digits_that_people_write(value: float) -> None:
    (stored,) = struct.unpack("<f", struct.pack("<f", value))
    assert shortest(stored) == value


@pytest.mark.needs_gguf
@pytest.mark.parametrize("name", ["llama-llama3", "gemma4_e", "qwen3_5_moe", "lfm2", "deepseek_v3"])
def test_damage_anywhere_in_a_header_is_a_sentence_and_takes_little_memory(name: str, tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.gguf", tmp_path / "x.gguf"
    write(Checkpoint.open(checkpoint(tmp_path / "model", **FAMILIES[name])), whole, "f32")
    data = whole.read_bytes()
    length = min(tensor.offset for tensor in read_header(whole).tensors.values())
    draw = random.Random(name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(150):
        spoiled = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            spoiled[draw.randrange(4, length)] = draw.choice((0, 1, 9, 127, 255, draw.randrange(256)))
        path.write_bytes(spoiled)
        with suppress(ModelError):
            opened = Checkpoint.open(path)
            with Weights(opened) as weights:
                for stored in opened.gguf.sources if opened.gguf else ():
                    weights.part(stored if stored.endswith(".weight") else f"{stored}.weight")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KB


@pytest.mark.needs_gguf
def test_what_a_header_cannot_say_is_named(tmp_path: Path) -> None:
    write(Checkpoint.open(checkpoint(tmp_path / "model")), tmp_path / "x.gguf", "f32")
    data = (tmp_path / "x.gguf").read_bytes()
    for ours, other, words in (
        (b"llama.block_count", b"llama.block_coun_", "block_count is 0, not from 1 to 1024"),
        (b"llama.attention.head_count", b"llama.attention.head_coun_", "num_attention_heads.* is missing"),
        (b"general.architecture", b"general.architectur_", "does not run architecture none"),
        (b"blk.2.ffn_up.weight", b"blk.2.ffn_um.weight", "ffn_um.weight"),
    ):
        (tmp_path / "x.gguf").write_bytes(data.replace(ours, other, 1))
        with pytest.raises(ModelError, match=words):
            GgufCheckpoint.open(tmp_path / "x.gguf")

"""GGUF files as targets and drafts of our own decoder: loaded, replaced, split, and left to llama.cpp with a reason."""

import gc
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from measure.random_gguf import write
from specchat.engine.errors import EngineError, ForeignModel, ModelError
from specchat.engine.llama_cpp.export import export
from specchat.engine.loading import load
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights
from tests.engine.conftest import SHARED
from tests.engine.tiny import checkpoint, on_cpu, perturbed
from tests.llama_cpp.conftest import byte_tokenizer
from tests.models.made import gguf

pytestmark = pytest.mark.needs_gguf
SAFETENSORS = "model.safetensors"
MAPS = Path("/proc/self/maps")
"""Files that this process has mapped."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(
        tmp_path_factory.mktemp("folder"),
        backend=byte_tokenizer(),
        num_key_value_heads=2,
        intermediate_size=256,
        eos_token_id=257,
    )


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "target.gguf"
    export(Checkpoint.open(folder), path, "f32")
    return path


def logits(path: Path) -> torch.Tensor:
    model = ReferenceDecoder(Checkpoint.open(path), 64)
    return model.logits(model.forward(range(40), 0))


def text(session: Session, strategy: str) -> str:
    request = Generate(1, (Message("user", "abcabcabc"),), Sampling(), Limits(24), Speculation.of(strategy))
    steps = [event for event in session.generate(request) if isinstance(event, Step)]
    return "".join(piece.text for step in steps for piece in step.pieces)


def test_a_file_is_the_pair_that_its_folder_is(folder: Path, file: Path, tmp_path: Path) -> None:
    small = perturbed(tmp_path / "small", folder, 0.05)
    export(Checkpoint.open(small), tmp_path / "small.gguf", "f32")
    sources = {True: (file, tmp_path / "small.gguf"), False: (folder, small)}
    pairs = [PairSpec("p", "P", *(on_cpu(path) for path in sources[one])) for one in (True, False)]
    pairs.append(PairSpec("p", "P", on_cpu(folder), on_cpu(tmp_path / "small.gguf")))
    of_file, of_folder, mixed = (load(pair, lambda _: None) for pair in pairs)
    assert of_file.info.strategy("draft").available
    assert of_file.info.strategy("swift").available == of_folder.info.strategy("swift").available
    plain = text(of_folder, "plain")
    assert plain
    for session, strategy in product((of_file, mixed), ("plain", "draft", "swift", "early-exit", "lookup")):
        assert text(session, strategy) == plain, strategy


def test_the_real_file_gives_the_tokens_of_its_folder() -> None:
    file = SHARED / "checkpoints" / "stories260K-f32.gguf"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    opened, folder = Checkpoint.open(file), Checkpoint.open(file.with_name("stories260K"))
    assert torch.equal(logits(file), logits(folder.folder))
    text = "Once upon a time, there was a little girl named Lily."
    ids = folder.tokenizer().backend.encode(text).ids
    assert opened.tokenizer().backend.encode(text).ids == ids
    assert opened.tokenizer().decode(ids) == folder.tokenizer().decode(ids)
    assert opened.config.eos >= folder.config.eos


@pytest.mark.needs_llama
def test_what_is_not_ours_is_left_to_llama_cpp_with_the_reason(file: Path, tmp_path: Path) -> None:
    import gguf

    reader, foreign = gguf.GGUFReader(file), tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(foreign, "llama")
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            of_list = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], of_list)
    for tensor in reader.tensors:
        kind = gguf.GGMLQuantizationType.TQ1_0 if tensor.name == "blk.0.ffn_down.weight" else tensor.tensor_type
        data = gguf.quants.quantize(tensor.data, kind) if kind != tensor.tensor_type else tensor.data
        writer.add_tensor(tensor.name, data.copy(), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reason = "blk.0.ffn_down.weight is of type TQ1_0"
    with pytest.raises(ForeignModel, match=reason) as caught:
        Checkpoint.open(foreign)
    assert 'backend = "gguf"' in caught.value.message
    session = load(PairSpec("p", "P", on_cpu(foreign)), lambda _: None)
    assert f"llama.cpp runs this pair: {reason}" in session.info.notes.note


def test_without_llama_cpp_our_decoder_stands_in_for_it_and_says_so(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specchat.engine.loading.find_spec", lambda _: None)
    session = load(PairSpec("p", "P", on_cpu(file), backend="gguf"), lambda _: None)
    assert "llama-cpp-python is not installed" in session.info.notes.warning
    assert session.info.strategy("swift").available
    foreign = gguf(tmp_path / "x.gguf", general__architecture="rwkv7")
    for backend in ("native", "gguf"):
        with pytest.raises(EngineError) as caught:
            load(PairSpec("p", "P", on_cpu(foreign), backend=backend), lambda _: None)
        assert caught.value.message.startswith(f"{foreign}: specchat's decoder does not run architecture rwkv7. ")
        assert "pip install" in caught.value.message


def test_a_split_model_is_one_checkpoint(folder: Path, file: Path, tmp_path: Path) -> None:
    import gguf

    reader, parts = gguf.GGUFReader(file), [tmp_path / f"x-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    for number, part in enumerate(parts):
        writer = gguf.GGUFWriter(part, "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 3)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for key, field in reader.fields.items() if number == 0 else ():
            if not key.startswith(("GGUF.", "general.architecture")):
                kind = field.types[0]
                of_list = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(key, field.contents(), kind, of_list)
        for tensor in reader.tensors[number::3]:
            writer.add_tensor(tensor.name, tensor.data.copy(), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    assert torch.equal(logits(parts[1]), logits(folder))
    assert len(Checkpoint.open(parts[0]).shards) == 3
    shutil.copyfile(parts[1], tmp_path / "kept")
    shutil.copyfile(parts[0], parts[1])
    with pytest.raises(ModelError, match="is not part 2 of 3"):
        Checkpoint.open(parts[0])
    parts[1].write_bytes((tmp_path / "kept").read_bytes()[:-64])
    with pytest.raises(ModelError, match="cut off"):
        Checkpoint.open(parts[0])
    parts[2].unlink()
    with pytest.raises(ModelError, match="parts are missing"):
        Checkpoint.open(parts[0])


@pytest.mark.parametrize("kind", ["GGUF", "safetensors"])
def test_a_file_that_shrinks_or_is_replaced_while_it_is_mapped_is_a_sentence(
    kind: str, folder: Path, file: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "m")
    whole, path = (
        (file, tmp_path / "x.gguf") if kind == "GGUF" else (folder / SAFETENSORS, tmp_path / "m" / SAFETENSORS)
    )
    for change in (lambda: os.truncate(path, 4096), lambda: os.replace(tmp_path / "y", path)):
        shutil.copyfile(whole, path)
        shutil.copyfile(whole, tmp_path / "y")
        with Weights(Checkpoint.open(path if kind == "GGUF" else path.parent)) as weights:
            change()
            with pytest.raises(ModelError, match="changed while it was read"):
                weights.get("model.norm.weight", 64)


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux lists what is mapped")
@pytest.mark.parametrize("kind", [host_model, ReferenceDecoder])
def test_a_loaded_model_has_left_its_files(
    folder: Path, file: Path, tmp_path: Path, kind: Callable[[Checkpoint], Any]
) -> None:
    """What stays mapped changes as the file does, and ends the process if that shrinks."""
    shutil.copytree(folder, tmp_path / "m")
    shutil.copyfile(file, tmp_path / "x.gguf")
    loaded = [kind(Checkpoint.open(tmp_path / name)) for name in ("m", "x.gguf")]
    gc.collect()
    assert (len(loaded), str(tmp_path) in MAPS.read_text()) == (2, False)


def test_values_that_are_no_numbers_are_a_sentence(folder: Path, tmp_path: Path) -> None:
    opened = Checkpoint.open(folder)
    write(opened, tmp_path / "x.gguf", "f32")
    stored = Checkpoint.open(tmp_path / "x.gguf")
    assert stored.gguf is not None
    offset = stored.gguf.files.tensors["blk.1.ffn_norm.weight"][1].offset
    with open(tmp_path / "x.gguf", "r+b") as changed:
        changed.seek(offset)
        changed.write(b"\x00\x00\xc0\x7f")
    with pytest.raises(ModelError, match="no numbers"):
        logits(tmp_path / "x.gguf")


def test_a_tensor_that_no_recipe_reads_is_not_silently_left_out(folder: Path, tmp_path: Path) -> None:
    """Biases of queries in a file whose family has none there."""
    opened = Checkpoint.open(folder)
    write(opened, tmp_path / "x.gguf", "f32")
    data = (tmp_path / "x.gguf").read_bytes()
    (tmp_path / "x.gguf").write_bytes(data.replace(b"blk.1.ffn_norm.weight", b"blk.1.ffn_nor2.weight"))
    with pytest.raises(ForeignModel, match=r"blk\.1\.ffn_nor2\.weight"):
        Checkpoint.open(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(data.replace(b"blk.1.ffn_norm.weight", b"blk.1.ff\x1b[2Jrm.weight"))
    with pytest.raises(ForeignModel) as caught:
        Checkpoint.open(tmp_path / "x.gguf")
    assert caught.value.message.isprintable()

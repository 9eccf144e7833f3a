"""Towers in files of llama.cpp see what those of folders see."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from measure.random_gguf import write
from specchat.engine.errors import EngineError
from specchat.engine.pictures.tower import Tower
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import finished
from tests.engine.tiny import on_cpu
from tests.pictures.conftest import unmeasured
from tests.pictures.test_pictures import ASKED, TWO
from tests.pictures.test_refused import refused
from tests.pictures.whole import GEMMAS, SIGLIP, saved

pytestmark = pytest.mark.needs_gguf
SIXTH_FULL = [*["sliding_attention"] * 5, "full_attention"]
"""As files of this architecture have it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = saved("gemma3", tmp_path_factory.mktemp("m") / "folder", num_hidden_layers=6, layer_types=SIXTH_FULL)
    # Files have merges, and name a way to split texts. No text has the byte 255.
    vocab = {c: i for i, c in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet())[:255], "th"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("t", "h")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(GEMMAS["gemma3"])
    backend.save(str(folder / "tokenizer.json"))
    return folder


def written(folder: Path, file: Path, exchanged: bool = False, **changes: Any) -> Path:
    """A file with the tower of a folder, as llama.cpp's converter writes it; `changes` of its keys."""
    import gguf

    writer = gguf.GGUFWriter(file, "clip")
    vision, like = gguf.Keys.ClipVision, SIGLIP
    keys = {
        "clip.projector_type": "gemma3",
        vision.PROJECTION_DIM: 64,
        vision.IMAGE_SIZE: like["image_size"],
        vision.PATCH_SIZE: like["patch_size"],
        vision.EMBEDDING_LENGTH: like["hidden_size"],
        vision.FEED_FORWARD_LENGTH: like["intermediate_size"],
        vision.BLOCK_COUNT: like["num_hidden_layers"],
        vision.Attention.HEAD_COUNT: like["num_attention_heads"],
        vision.Projector.SCALE_FACTOR: 3,
    }
    writer.add_type("mmproj")
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)
    for key, value in (keys | changes).items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 2)
    for name, tensor in load_file(folder / "model.safetensors").items():
        if "vision" not in name and "projector" not in name:
            continue
        published = name.removeprefix("model.").replace("vision_tower.", "vision_tower.vision_model.")
        stored = names.get_name(published.replace("_weight", ".weight"), try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        if exchanged and "ffn_" in stored:
            stored = stored.replace("ffn_up", "?").replace("ffn_down", "ffn_up").replace("?", "ffn_down")
        values = (tensor + 1 if "soft_emb_norm" in name else tensor).float().numpy()
        half = "blk" in stored and "weight" in stored and "ln" not in stored
        writer.add_tensor(stored, values.astype("float16") if half else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def text(folder: Path, file: Path) -> None:
    """Write the text of a folder's model."""
    opened = Checkpoint.open(folder)
    write(replace(opened, settings=opened.settings["text_config"]), file, "f32", tokenizer=True)


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


def test_it_sees_what_the_folder_sees(folder: Path, file: Path) -> None:
    of_folder, of_file = opened(folder), opened(file)
    tokens = [one._prompts.prompt(Generate(1, ASKED)).tokens for one in (of_folder, of_file)]
    assert tokens[0] == tokens[1]
    seen = [one.album.look(TWO) for one in (of_folder, of_file)]
    for rows, theirs in zip(*seen, strict=True):
        torch.testing.assert_close(rows, theirs, atol=0.02, rtol=0.02)
        assert 0 < (rows - theirs).abs().max() < 0.1 * rows.std()
    logits = [one.target.next_logits(tokens[0]) for one in (of_folder, of_file)]
    torch.testing.assert_close(*logits, atol=0.05, rtol=0.05)
    requests = [Generate(1, ASKED, limits=Limits(8), speculation=Speculation.of(one)) for one in ("plain", "lookup")]
    plain, lookup = (finished(list(of_file.generate(request))).token_ids for request in requests)
    assert plain == lookup


def test_files_of_older_converters_name_the_products_of_an_mlp_the_other_way(folder: Path, tmp_path: Path) -> None:
    rows = []
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
    for key, value, words in (("patch_size", 0, "patch_size is missing"), ("image_size", 48, "size mismatch")):
        other = tmp_path / key / "tiny.gguf"
        other.parent.mkdir()
        other.symlink_to(file)
        written(folder, other.with_name("mmproj.gguf"), **{f"clip.vision.{key}": value})
        with pytest.raises(EngineError, match=rf"mmproj\.gguf: .*{words}"):
            list(opened(other).generate(Generate(1, ASKED, limits=Limits(2))))


def test_without_a_file_beside_it_text_alone_is_read(file: Path, tmp_path: Path) -> None:
    alone = tmp_path / "tiny.gguf"
    alone.symlink_to(file)
    session = unmeasured(PairSpec("p", "Tiny", on_cpu(alone)))
    assert not session.info.sees
    refused(session, "^Tiny has no part that reads pictures")

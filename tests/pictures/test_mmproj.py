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
from tests.pictures.whole import GEMMAS, PIXTRAL, SIGLIP, saved

pytestmark = pytest.mark.needs_gguf
SIXTH_FULL = [*["sliding_attention"] * 5, "full_attention"]
"""As files of this architecture have it."""


MARKS = {"gemma3": GEMMAS["gemma3"], "mistral3": ["<|end|>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]}
TEXTS: dict[str, dict[str, Any]] = {
    "gemma3": {"num_hidden_layers": 6, "layer_types": SIXTH_FULL},
    "mistral3": {"num_hidden_layers": 2},
}


def made(kind: str, folder: Path) -> Path:
    """A model of a kind whose tokens and template files can have."""
    saved(kind, folder, **TEXTS[kind])
    # Files have merges, and name a way to split texts. No text has the byte 255.
    vocab = {c: i for i, c in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet())[:255], "th"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("t", "h")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(MARKS[kind])
    backend.save(str(folder / "tokenizer.json"))
    settings = folder / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace("<|image|>", "[IMG]"))
    return folder


@pytest.fixture(scope="module", params=MARKS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(request.param, tmp_path_factory.mktemp(request.param) / request.param)


def permuted(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of heads that rotate pairs of neighbours, of those that rotate halves, as the converter has it."""
    heads = PIXTRAL["num_attention_heads"]
    return tensor.view(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def written(folder: Path, file: Path, exchanged: bool = False, **changes: Any) -> Path:
    """A file with the tower of a folder, as llama.cpp's converter writes it; `changes` of its keys."""
    import gguf

    writer, gemma = gguf.GGUFWriter(file, "clip"), folder.name == "gemma3"
    vision, of = gguf.Keys.ClipVision, SIGLIP if gemma else PIXTRAL
    keys = {
        "clip.projector_type": "gemma3" if gemma else "pixtral",
        vision.PROJECTION_DIM: 64,
        vision.IMAGE_SIZE: of["image_size"],
        vision.PATCH_SIZE: of["patch_size"],
        vision.EMBEDDING_LENGTH: of["hidden_size"],
        vision.FEED_FORWARD_LENGTH: of["intermediate_size"],
        vision.BLOCK_COUNT: of["num_hidden_layers"],
        vision.Attention.HEAD_COUNT: of["num_attention_heads"],
        (vision.Projector.SCALE_FACTOR if gemma else vision.SPATIAL_MERGE_SIZE): 3 if gemma else 2,
    }
    writer.add_type("mmproj")
    writer.add_vision_attention_layernorm_eps(1e-6)
    if gemma:
        writer.add_vision_image_mean([0.5] * 3)
        writer.add_vision_image_std([0.5] * 3)
    for key, value in (keys | changes).items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 3)
    for name, tensor in load_file(folder / "model.safetensors").items():
        if "vision" not in name and "projector" not in name:
            continue
        published = name.removeprefix("model.")
        published = published.replace("vision_tower.", "vision_tower.vision_model.") if gemma else published
        stored = names.get_name(published.replace("_weight", ".weight"), try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        if exchanged and "ffn_" in stored:
            stored = stored.replace("ffn_up", "?").replace("ffn_down", "ffn_up").replace("?", "ffn_down")
        rotated = not gemma and ("attn_q." in stored or "attn_k." in stored)
        tensor = permuted(tensor) if rotated else tensor + 1 if "soft_emb_norm" in name else tensor
        half = "blk" in stored and "weight" in stored and "ln" not in stored
        writer.add_tensor(stored, (tensor.half() if half else tensor.float()).numpy())
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
    seen = list[torch.Tensor](), list[torch.Tensor]()
    for one, into in zip((of_folder, of_file), seen, strict=True):
        list(one.album.look(TWO, into))
    for rows, theirs in zip(*seen, strict=True):
        torch.testing.assert_close(rows, theirs, atol=0.02, rtol=0.02)
        assert 0 < (rows - theirs).abs().max() < 0.1 * rows.std()
    logits = [one.target.next_logits(tokens[0]) for one in (of_folder, of_file)]
    torch.testing.assert_close(*logits, atol=0.05, rtol=0.05)
    requests = [Generate(1, ASKED, limits=Limits(8), speculation=Speculation.of(one)) for one in ("plain", "lookup")]
    plain, lookup = (finished(list(of_file.generate(request))).token_ids for request in requests)
    assert plain == lookup


def test_files_of_older_converters_name_the_products_of_an_mlp_the_other_way(tmp_path: Path) -> None:
    rows, folder = [], made("gemma3", tmp_path / "gemma3")
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
    for key, value, words in (("patch_size", 0, "patch_size is missing"), ("feed_forward_length", 40, "size mismatch")):
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

"""Layers for multi-token prediction in GGUF files, and in files beside them, draft as those of their folders."""

from collections.abc import Callable
from pathlib import Path

import pytest

from measure.random_gguf import Kind, Nextn, write
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.published_heads import glm_mtp, qwen_mtp
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import on_cpu
from tests.llama_cpp.conftest import byte_tokenizer

pytestmark = pytest.mark.needs_gguf
MADE: dict[str, Callable[[Path], Path]] = {
    "glm4_moe": lambda folder: glm_mtp(folder, backend=byte_tokenizer()),
    "qwen3_5": lambda folder: qwen_mtp(folder, backend=byte_tokenizer()),
    "qwen3_5_moe": lambda folder: qwen_mtp(folder, "qwen3_5_moe", backend=byte_tokenizer()),
}


def written(folder: Path, file: Path, predicts: Nextn, kind: Kind = "f32") -> Path:
    """The file of a folder's model; a layer "alone" is in one beside it."""
    opened = Checkpoint.open(folder)
    file.parent.mkdir(exist_ok=True)
    if predicts == "alone":
        write(opened, file.with_name(f"mtp-{file.name}"), kind, predicts=predicts)
    write(opened, file, kind, tokenizer=True, predicts="left out" if predicts == "alone" else predicts)
    return file


def loaded(path: Path) -> Session:
    return load(PairSpec("p", "P", on_cpu(path)), lambda _: None)


def drafted(session: Session) -> list[tuple[list[int], int, int]]:
    """The tokens of replies, and how many were drafted and accepted; the tokens are plain's."""
    assert session.info.strategy("mtp").available, session.info.strategy("mtp").reason
    found = []
    for sampling in (Sampling(), *(Sampling(temperature=0.8, seed=seed) for seed in range(3))):
        plain = finished(reply(session, "abcab", sampling, Limits(40), Speculation()))
        last = finished(reply(session, "abcab", sampling, Limits(40), Speculation("mtp", 3)))
        assert last.token_ids == plain.token_ids
        found.append(([*last.token_ids], last.stats.num_draft_tokens, last.stats.num_accepted_draft_tokens))
    return found


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("family", "predicts"),
    [("glm4_moe", "within"), ("glm4_moe", "alone"), ("qwen3_5", "within"), ("qwen3_5_moe", "alone")],
)
def test_a_layer_in_a_file_drafts_as_in_its_folder(family: str, predicts: Nextn, tmp_path: Path) -> None:
    folder = MADE[family](tmp_path / "folder")
    of_file, of_folder = (
        drafted(loaded(path)) for path in (written(folder, tmp_path / "files" / "x.gguf", predicts), folder)
    )
    assert of_file == of_folder
    assert 0 < sum(accepted for *_, accepted in of_file) < sum(count for _, count, _ in of_file)


def test_a_quantised_layer_drafts(tmp_path: Path) -> None:
    widths = {"intermediate_size": 128, "moe_intermediate_size": 64}
    folder = glm_mtp(tmp_path / "folder", backend=byte_tokenizer(), **widths)
    drafted(loaded(written(folder, tmp_path / "files" / "x.gguf", "within", "q8_0")))


@pytest.mark.parametrize("name", [b"nextn.eh_proj", b"nextn.hnorm"])
def test_a_file_that_lacks_a_tensor_of_the_layer_runs_without(name: bytes, tmp_path: Path) -> None:
    file = written(MADE["glm4_moe"](tmp_path / "folder"), tmp_path / "files" / "x.gguf", "within")
    file.write_bytes(file.read_bytes().replace(b"." + name + b".weight", b".?" + name[1:] + b".weight"))
    session = loaded(file)
    reason = session.info.strategy("mtp").reason
    assert f"x.gguf lacks blk.4.{name.decode()}.weight, a tensor of its layer for multi-token prediction" in reason
    assert finished(reply(session, "abcab", Sampling(), Limits(8), Speculation())).token_ids


def test_only_a_layer_of_the_same_shape_is_taken_of_several_beside(tmp_path: Path) -> None:
    folder, other = MADE["glm4_moe"](tmp_path / "folder"), MADE["qwen3_5"](tmp_path / "other")
    file = written(folder, tmp_path / "files" / "model-Q4_K_M.gguf", "left out")
    assert Checkpoint.open(file).nextn is None
    assert not loaded(file).info.strategy("mtp").available
    write(Checkpoint.open(other), file.with_name("mtp-model-Q4_K_M.gguf"), "f32", predicts="alone")
    (file.parent / "mtp-broken.gguf").write_bytes(b"GGUF\x03")
    assert Checkpoint.open(file).nextn is None
    for name in ("mtp-another.gguf", "mtp-model.gguf"):
        write(Checkpoint.open(folder), file.with_name(name), "f32", predicts="alone")
    found = Checkpoint.open(file).nextn
    assert found is not None
    assert found.path.name == "mtp-model.gguf"

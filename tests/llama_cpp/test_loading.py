"""What leads to a loaded GGUF pair: files of a repository, and the command that writes files."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from specchat.cli.root import specchat
from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.llama_cpp.export import export
from specchat.engine.loading import load
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import checkpoint
from tests.hub.server import loopback_hub, of_folder
from tests.llama_cpp.conftest import byte_tokenizer, pair

pytestmark = pytest.mark.needs_llama

LOAD = """
import json, sys
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
for file in sys.argv[1:]:
    seen = []
    try:
        session = load(PairSpec("p", "P", ModelSource(repo="someone/tiny", file=file), None, "gguf"), seen.append)
        print(json.dumps({"context": session.info.context, "seen": [s.what for s in seen]}))
    except EngineError as error:
        print(json.dumps({"kind": error.kind, "message": error.message}))
"""


def fetched(home: Path, endpoint: str, *files: str) -> list[dict[str, object]]:
    """What loading each file gave. The hub's library reads its environment at import, so each hub has a process."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint}
    result = subprocess.run(
        [sys.executable, "-c", LOAD, *files], env=environment, capture_output=True, text=True, timeout=400, check=True
    )
    return [dict(json.loads(line)) for line in result.stdout.splitlines()[-len(files) :]]


def test_one_file_of_a_repository_is_downloaded_once(files: tuple[Path, Path], tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    for name in ("a.gguf", "b.gguf"):
        (origin / name).write_bytes(files[0].read_bytes())
    with loopback_hub({"someone/tiny": of_folder(origin)}) as hub:
        first, missing = fetched(tmp_path / "home", hub.endpoint, "a.gguf", "c.gguf")
    assert first.get("context") == 256, first
    assert [str(s) for s in first["seen"] if str(s).startswith("downloading")]  # type: ignore[attr-defined]
    assert {path.name for path in (tmp_path / "home").rglob("*.gguf")} == {"a.gguf"}
    assert missing["kind"] == "model"
    assert "someone/tiny has no c.gguf" in str(missing["message"])
    (again,) = fetched(tmp_path / "home", "http://127.0.0.1:1", "a.gguf")
    assert again.get("context") == 256, again


@pytest.mark.parametrize("kind", ["f32", "q4_0"])
def test_the_demo_is_written_and_loaded_by_the_lines_that_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    out = tmp_path / 'a "folder"'
    result = CliRunner().invoke(specchat, ["convert", "demo", "--to", "gguf", "--out", str(out), "--type", kind])
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in out.iterdir()) == [f"demo-draft-{kind}.gguf", f"demo-target-{kind}.gguf"]
    (tmp_path / "models.toml").write_text("schema = 1\n" + result.output)
    pair = load_catalog(tmp_path / "models.toml").find("demo-gguf")
    info = load(pair.spec, lambda _: None).info
    assert info.strategy("draft").available
    config = Checkpoint.open(demo_model("target")).config
    assert info.target.parameters == pytest.approx(config.parameters(), rel=0.01)
    small = (out / f"demo-target-{kind}.gguf").stat().st_size / config.parameters()
    assert small == pytest.approx({"f32": 4.0, "q4_0": 0.62}[kind], rel=0.1)


def test_a_folder_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder, out = checkpoint(tmp_path / "My model", backend=byte_tokenizer()), tmp_path / "out"
    result = CliRunner().invoke(specchat, ["convert", str(folder), "--to", "gguf", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [path.name for path in out.iterdir()] == ["my-model-target-f16.gguf"]
    (tmp_path / "models.toml").write_text("schema = 1\n" + result.output)
    assert load_catalog(tmp_path / "models.toml").find("my-model-gguf").name == "My model gguf f16"


def test_files_that_exist_are_replaced_whole_and_errors_leave_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "demo-target-f16.gguf").mkdir()
    result = CliRunner().invoke(specchat, ["convert", "demo", "--to", "gguf", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "cannot be written" in result.output
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["demo-target-f16.gguf"]


def test_a_gguf_pair_is_not_converted_again(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    models = tmp_path / "models.toml"
    models.write_text(f'schema = 1\n[[pair]]\nid = "x"\nbackend = "gguf"\ntarget = {{ path = "{files[0]}" }}\n')
    result = CliRunner().invoke(specchat, ["convert", "x", "--to", "gguf", "--models", str(models)])
    assert result.exit_code == 2
    assert "is a GGUF file already" in result.output


def test_scaled_positions_reach_beyond_the_original_ones(tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 2.0}
    folder = checkpoint(tmp_path / "m", backend=byte_tokenizer(), max_position_embeddings=128, rope_scaling=scaling)
    export(Checkpoint.open(folder), tmp_path / "m.gguf", "f32")
    spec = pair(tmp_path / "m.gguf")
    assert load(replace(spec, context=200), lambda _: None).info.context == 200
    session = load(replace(spec, context=999), lambda _: None)
    assert session.info.context == 256
    assert session.info.notes.warning.startswith("context = 999 is more than ")
    ids = [int(token) for token in torch.randint(0, 256, (250,), generator=torch.Generator().manual_seed(1))]
    model = session.runner.target.model  # type: ignore[attr-defined]
    model.write(ids[:-1], 0)
    ours = ReferenceDecoder(Checkpoint.open(folder), context=256)
    ours.forward(ids[:128], 0)
    expected = ours.logits(ours.forward(ids[128:], 128))[-1]
    torch.testing.assert_close(model.next_logits(ids[-1], 249), expected, atol=1e-3, rtol=1e-3)

"""What is compiled is kept for the next start; whatever is wrong with what was kept, a reply comes."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from specchat.config.paths import demo_model

LOGITS = """
import logging, os, sys
from pathlib import Path
logging.basicConfig(level="INFO", stream=sys.stderr)
from specchat.engine.cpu import compiled
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.runners.host import host_model
told = []
with compiled.telling(lambda: told.append(1)):
    model = host_model(Checkpoint.open(Path(sys.argv[1])), 64, sys.argv[2] or None)
print(bool(told))
print(type(model).__name__, model.exactness)
print(model.logits(model.forward([5, 6, 7], 0))[-1].argmax().item(), flush=True)
os._exit(0)  # as the engine process ends
"""


def started(folder: Path, quant: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOGITS, str(demo_model("draft")), quant],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)} | environ,
        check=True,
        capture_output=True,
        text=True,
    )


def kept_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_compiled_is_kept_and_used_again(tmp_path: Path) -> None:
    first = started(tmp_path / "cache" / "compiled").stdout.split("\n")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert first[0] == "True"
    assert first[1] == "CpuDecoder row-invariant by construction"
    files = {path: path.stat().st_mtime_ns for path in kept_in(tmp_path)}
    assert files
    # numba writes an index that several functions share without a lock between processes.
    assert len(list(tmp_path.rglob("*columns*.nbi"))) == len(list(tmp_path.rglob("*columns*.nbc"))) > 1
    second = started(tmp_path / "cache" / "compiled").stdout.split("\n")
    assert second[0] == "False"
    assert second[1:] == first[1:]
    assert {path: path.stat().st_mtime_ns for path in kept_in(tmp_path)} == files
    if find_spec("bitsandbytes"):
        other = [started(tmp_path / "cache" / "compiled", "int8").stdout.split("\n")[0] for _ in range(2)]
        assert other == ["True", "False"], "what a pair needs besides is told too, once"
    for path in (*tmp_path.rglob("*passes*"), *tmp_path.rglob("*columns*")):
        path.write_bytes(b"no such thing")
    third = started(tmp_path / "cache" / "compiled")
    assert third.stdout.split("\n")[1:] == first[1:]
    assert "cannot be used" in third.stderr
    assert "cannot be used" not in started(tmp_path / "cache" / "compiled").stderr


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a folder")
    passing = tmp_path / "passing"
    passing.mkdir()
    found = started(taken / "compiled", TMPDIR=str(passing))
    assert found.stdout.startswith("True\nCpuDecoder")
    assert "cannot be written" in found.stderr
    assert not list(passing.iterdir()), "nothing is left behind"


@pytest.mark.parametrize(("missing", "error"), [("numba", "ImportError"), ("llvmlite", "OSError")])
def test_without_the_compiler_the_plain_decoder_runs(missing: str, error: str, tmp_path: Path) -> None:
    (tmp_path / f"{missing}.py").write_text(f"raise {error}('not for this system')")
    found = started(tmp_path / "never", PYTHONPATH=str(tmp_path))
    assert "\nDecoder row-invariant products" in found.stdout

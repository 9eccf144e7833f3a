"""What is compiled is kept for the next start; whatever is wrong with what was kept, a reply comes."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import specchat.engine
from specchat.config.paths import demo_model
from specchat.engine.cpu import compiled

START = """
import logging, os, sys
from pathlib import Path
logging.basicConfig(level="INFO", stream=sys.stderr)
from specchat.engine.cpu import compiled
told = []
with compiled.reporting(told.append):
{made}
print(bool(told) and told == sorted(told) and 0 < told[0] < told[-1] <= 1)
print({result}, flush=True)
os._exit(0)  # as the engine process ends
"""
PAIR = START.format(
    made="""
    from specchat.engine.weights.checkpoint import Checkpoint
    from specchat.engine.runners.host import host_model
    model = host_model(Checkpoint.open(Path(sys.argv[1])), 64, sys.argv[2] or None)
""",
    result="type(model).__name__, model.exactness, model.logits(model.forward([5, 6, 7], 0))[-1].argmax().item()",
)
"""A model as a pair has it."""
CHOICE = START.format(
    made="""
    import numpy as np
    assert not compiled.unavailable(compiled.CHOICE)
    from specchat.engine.cpu.drafting import choice
""",
    result="choice.draw(np.arange(9, dtype=np.float32), np.uint64(7), 3, 1)",
)
"""A module, as a pair's are, in a tenth of the time."""
PRODUCTS = """
import sys
from pathlib import Path
from specchat.engine.cpu import compiled
from specchat.engine.cpu.products import columns, products, tiles
columns.WIDE, columns.NARROW = {1: 8, 2: 6}, {1: 4, 2: 2}  # two of a format, of up to eight

def compiles(form):
    told = []
    with compiled.reporting(told.append):
        assert (products.kernels.__wrapped__(form) > 0).all()
    return bool(told)

print(*(compiles(form) for form in (tiles.FLOAT32, tiles.FLOAT32, tiles.FLOAT16, tiles.FLOAT16)))
for path in Path(sys.argv[2]).rglob("*columns*.nbi"):
    path.write_bytes(b"no such thing")
print(*(compiles(tiles.FLOAT32) for _ in range(2)), flush=True)
"""
"""Whether products of two formats are compiled, each at first and again; and of one whose files were damaged."""
SHARING = "from specchat.engine.cpu import compiled; compiled.share_compilation(); print(compiled._helpers)"
"""Prints the processes that compile for this one."""


def started(folder: Path, program: str = CHOICE, quant: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """What the program prints: whether anything was compiled, then what it has and computes."""
    return subprocess.run(
        [sys.executable, "-c", program, str(demo_model("draft")), quant],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)} | environ,
        check=True,
        capture_output=True,
        text=True,
    )


def kept_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("program", "modules"),
    [(CHOICE, ["choice"]), pytest.param(PAIR, ["passes", "columns"], marks=pytest.mark.slow)],
    ids=["module", "pair"],
)
def test_what_is_compiled_is_kept_and_used_again(program: str, modules: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "compiled"
    first = started(folder, program).stdout.split("\n")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert first[0] == "True"
    assert first[1].startswith("CpuDecoder row-invariant by construction ") == (program == PAIR)
    files = {path: path.stat().st_mtime_ns for path in kept_in(tmp_path)}
    assert files
    second = started(folder, program).stdout.split("\n")
    assert second[0] == "False"
    assert second[1:] == first[1:]
    assert {path: path.stat().st_mtime_ns for path in kept_in(tmp_path)} == files
    if program == PAIR and find_spec("bitsandbytes"):
        other = [started(folder, program, "int8").stdout.split("\n")[0] for _ in range(2)]
        assert other == ["True", "False"], "what a pair needs besides is told too, once"
    for name in modules:
        damaged = list(tmp_path.rglob(f"*{name}*.nbi"))
        assert damaged
        for path in damaged:
            path.write_bytes(b"no such thing")
        third = started(folder, program)
        assert third.stdout.split("\n")[1:] == first[1:]
        assert "cannot be used" in third.stderr, name
    assert "cannot be used" not in started(folder, program).stderr
    assert started(folder, SHARING).stdout == "[]\n", "what is kept is not compiled elsewhere"


def test_products_are_kept_and_used_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "compiled")
    first = started(tmp_path / "compiled", PRODUCTS, folder)
    assert first.stdout == "True False True False\nTrue False\n"
    assert "cannot be used" in first.stderr
    # numba writes an index that several functions share without a lock between processes.
    assert len(list(tmp_path.rglob("*columns*.nbi"))) == len(list(tmp_path.rglob("*columns*.nbc"))) > 1
    assert started(tmp_path / "compiled", PRODUCTS, folder).stdout.startswith("False False True False\n")


def test_without_a_folder_code_is_kept_by_its_sources_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba's own folder is for a file: it would keep what was made of other files as they were before."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = compiled._folder()
    assert tmp_path in folder.parents
    monkeypatch.setattr(compiled, "_SOURCES", (Path(compiled.__file__),))
    assert compiled._folder() != folder


def test_code_is_compiled_again_where_a_constant_of_another_folder_changed() -> None:
    """Numbers of the Python between passes are not compiled."""
    engine, python_alone = Path(specchat.engine.__path__[0]), {"hardware/threads.py", "program/ops.py"}
    files = {file for room in compiled._SOURCES for file in ([room] if room.is_file() else room.rglob("*.py"))}
    for file in (engine / "cpu").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and any(one.name.isupper() for one in node.names):
                source = Path(find_spec(str(node.module)).origin)  # type: ignore[union-attr, arg-type]
                taken = source in files or engine not in source.parents
                assert taken or str(source.relative_to(engine)) in python_alone, (file, node.module)


def test_the_process_that_compiles_beside_does_not_wait_for_torch() -> None:
    """It has two seconds' work, and would take a third more."""
    program = (
        "import sys\nfrom specchat.engine.cpu import compiled\ncompiled.compile_rest()\nprint('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as beside:
        assert beside.stdout is not None
        assert beside.stdout.read() == "False\n"


def test_a_pair_that_was_started_starts_without_compiling() -> None:
    """In the folder of all tests, where most of it is."""
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    first = again = started(folder, PAIR).stdout.split("\n")
    assert first[1].startswith("CpuDecoder row-invariant by construction ")
    if first[0] == "True":
        again = started(folder, PAIR).stdout.split("\n")
    assert again == ["False", *first[1:]]


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a folder")
    passing = tmp_path / "passing"
    passing.mkdir()
    found = started(taken / "compiled", TMPDIR=str(passing))
    assert found.stdout == "True\n6\n"
    assert "cannot be written" in found.stderr
    assert not list(passing.iterdir()), "nothing is left behind"


def test_without_the_compiler_the_reference_runs(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('not for this system')")
    found = started(tmp_path / "never", PAIR, PYTHONPATH=str(tmp_path))
    assert "\nReferenceDecoder each token computed alone" in found.stdout


def test_a_compiler_without_its_library_is_none(tmp_path: Path) -> None:
    (tmp_path / "llvmlite.py").write_text("raise OSError('not for this system')")
    why = "from specchat.engine.cpu import compiled; print(compiled.unavailable())"
    found = started(tmp_path / "never", why, PYTHONPATH=str(tmp_path))
    assert found.stdout == "numba cannot be imported (not for this system)\n"


SHARED = START.format(
    made="""
    import numpy as np
    compiled.PATIENCE_S = 600.0  # however busy the machine is
    compiled.share_compilation()
    (helper,) = compiled._helpers
    if sys.argv[2]:
        helper.kill()
    assert not compiled.unavailable(compiled.CHOICE)
    from specchat.engine.cpu.drafting import choice
    from specchat.engine.cpu.products import columns, products, tiles
    if sys.argv[2]:
        columns.WIDE, columns.NARROW = {1: 8}, {1: 4}
    products.kernels(tiles.FLOAT16)
""",
    result="helper.returncode, choice.draw(np.arange(9, dtype=np.float32), np.uint64(7), 3, 1)",
)


def test_another_process_compiles_what_is_read_here(tmp_path: Path) -> None:
    assert started(tmp_path, SHARED).stdout == "False\n0 6\n", "nothing was compiled here"
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert kept >= {"chain.draft_chain", "dispatch.lead", "dispatch.follow", "choice.draw"}


def test_without_the_other_process_all_is_compiled_here(tmp_path: Path) -> None:
    assert started(tmp_path, SHARED, "kill").stdout == "True\n-9 6\n"


def test_nothing_is_shared_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("not a folder")
    assert started(tmp_path / "taken" / "compiled", SHARING).stdout == "[]\n"

"""Loading GGUF files on a processor beside reading them: `python -m measure.gguf_load FILE ... [--made 1.7b:Q4_K_M]`.

Seconds of the processor for a GB of a file that the system has in its cache, medians of `--repeats` turns, in each of
which everything is done once: the file read into one buffer after another, which copies it, and into memory of its
own; then all weights laid out for the compiled pass, in one pass over the file, and by torch and numpy. A column
has the seconds of the clock of the former, with as many threads as there are cores.

A second table has the seconds that the code for a type takes to compile, in a cache of its own.

With `--first` the one table has seconds of the clock: a file read once from its disk, and from the start of `specchat
ask`, without an engine, to the first character of the reply, with the file on its disk and in the system's cache.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np
import torch

from measure.random_qwen3 import made
from specchat.engine.cpu import parameters
from specchat.engine.cpu.parameters import Parameters
from specchat.engine.formats.gguf import FIELDS
from specchat.engine.weights.checkpoint import Checkpoint

BUFFER = 1 << 20
COMPILED = """
import sys
from time import process_time
from specchat.engine.cpu import compiled, unpacking
assert not compiled.unavailable(compiled.CHOICE)  # what numba prepares for any function
begun = process_time()
unpacking._code(sys.argv[1], True)  # for rows of bytes, the default of these files
print(process_time() - begun)
"""


def read_through(file: Path) -> None:
    """Read a file into one buffer after another."""
    buffer = bytearray(BUFFER)
    with file.open("rb", buffering=0) as opened:
        while opened.readinto(buffer):
            pass


def load(opened: Checkpoint) -> None:
    """Load all weights."""
    Parameters(opened, None)


def load_in_general(opened: Checkpoint) -> None:
    """Load all weights as those that other executors take."""
    with patch.object(parameters, "InFile", lambda weights: weights):
        load(opened)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    begun = process_time(), perf_counter()
    run()
    return process_time() - begun[0], perf_counter() - begun[1]


def row(file: Path, repeats: int) -> str:
    """A row of the table."""
    opened = Checkpoint.open(file)
    load(opened)  # compiles
    runs = partial(read_through, file), file.read_bytes, partial(load, opened), partial(load_in_general, opened)
    times = np.median([[timed(run) for run in runs] for _ in range(repeats)], 0) * (1e9 / file.stat().st_size)
    through, whole, loaded, general = times[:, 0]
    cells = f"{through:.2f} | {whole:.2f} | **{loaded:.2f}** | {times[2, 1]:.2f} | {general:.2f}"
    return f"| {file.stem} | {file.stat().st_size / 1e9:.2f} | {cells} | {loaded / whole:.2f} |"


def compiled(kind: str, repeats: int) -> float:
    """Seconds that the code for a type takes to compile."""
    found = []
    for _ in range(repeats):
        with TemporaryDirectory(prefix="specchat-code-") as folder:
            command, environ = [sys.executable, "-c", COMPILED, kind], os.environ | {"NUMBA_CACHE_DIR": folder}
            found.append(float(subprocess.run(command, env=environ, check=True, capture_output=True).stdout))
    return median(found)


def from_disk(file: Path) -> None:
    """Have the system forget what it has in its cache of a file."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def first(file: Path, home: str) -> float:
    """Seconds from the start of a command to the first character of its reply."""
    command, environ = [sys.executable, "-m", "specchat"], os.environ | {"SPECCHAT_HOME": home}
    asked = [*command, "ask", "--target", str(file), "--max-tokens", "2", "--seed", "0", "Hello"]
    begun = perf_counter()
    with subprocess.Popen(asked, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as running:
        assert running.stdout is not None
        assert running.stdout.read(1)
        taken = perf_counter() - begun
    subprocess.run([*command, "engine", "stop"], env=environ, check=True, capture_output=True)
    return taken


def first_row(file: Path, repeats: int) -> str:
    """A row of the table of first tokens."""
    times = []
    with TemporaryDirectory(prefix="specchat-first-") as home:
        first(file, home)  # compiles
        for _ in range(repeats):
            from_disk(file)
            read = timed(partial(read_through, file))[1]
            from_disk(file)
            times.append((read, first(file, home), first(file, home)))
    read, cold, warm = np.median(times, 0)
    size = file.stat().st_size / 1e9
    return f"| {file.stem} | {size:.2f} | {read:.2f} | **{cold:.2f}** | {warm:.2f} | {cold / read:.2f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--made", action="append", default=[], help="SHAPE:MIXTURE of a random file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--first", action="store_true", help="measure the time to a first token instead")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.first:
        print("| file | GB | read from disk | **first token** | from the cache | first / read |")
        print("|---|---|---|---|---|---|")
        with made(given.made) as files:
            for file in (*given.files, *files):
                print(first_row(file, given.repeats), flush=True)
        return
    print("| file | GB | copied | read | **loaded** | of the clock | in general | loaded / read |")
    print("|---|---|---|---|---|---|---|---|")
    with made(given.made) as files:
        for file in (*given.files, *files):
            print(row(file, given.repeats), flush=True)
    print("\n| type | compiled |\n|---|---|")
    for kind in FIELDS:
        print(f"| {kind} | {compiled(kind, given.repeats):.2f} |", flush=True)


if __name__ == "__main__":
    main()

"""Reports of cases as they were compiled, so that a run compiles those alone whose kernels have changed.

An entry goes by a hash of the source of its kernel and all that this calls, of how it is launched, and of what reads
the programs. `tests.kernels.recorded` brings the file up to date with its own.
"""

import hashlib
import inspect
import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.kernels import compiled, ptx, recorded

FOLDER = Path(__file__).parent
FILE = FOLDER / "reports.json"
NEWEST = 120
"""The one architecture of which reports are kept; others are compiled in slow tests alone."""
LISTS = "CASES", "TABLES"
"""Lists of cases whose reports are kept: planted faults are compiled in each run."""


@cache
def readers() -> bytes:
    """The source of what makes a report of a program."""
    parts = compiled.compile_case, compiled.report, compiled.longest_loop, compiled.exchanged, compiled.operands
    return "".join(map(inspect.getsource, (*parts, compiled._kind, ptx))).encode()


def name_of(case: "compiled.Case") -> str:
    """The name of a case's entry."""
    import triton

    launch = case.signature, recorded.alike(case.constants), case.aligned, case.num_warps, case.num_stages
    parts = triton.__version__, case.kernel.cache_key, *launch, case.weights, case.options
    return f"{case.name} {hashlib.sha256(repr(parts).encode() + readers()).hexdigest()[:16]}"


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def update() -> None:
    """Compile what the file lacks, drop what no case has, and write it."""
    known, kept = read(), dict[str, Any]()
    for file in sorted(FOLDER.glob("cases_*.py")):
        module = import_module(f"tests.kernels.{file.stem}")
        for case in (one for name in LISTS for one in getattr(module, name, ())):
            if case.name not in getattr(module, "ALIKE", ()):
                name = name_of(case)
                kept[name] = known.get(name) or compiled.reported([case], NEWEST)[0]
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(kept.items()))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

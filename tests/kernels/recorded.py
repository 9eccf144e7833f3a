"""The record of what the compiler makes of every kernel that real pairs launch on cards for consumers.

`python -m tests.kernels.recorded` compiles what the record lacks, drops what nothing launches, and writes it;
`--anew` compiles all, `--every` the pairs on every card, where else each is on one in turn. `--look N` writes nothing:
it prints as JSON what is launched and not recorded, and N entries compiled anew, of -1 all that is launched.
An entry goes by a hash of the source of its kernel and all that this calls, its signature, constants and options,
without comments, docstrings and line numbers. It runs in a process without the interpreter.
"""

import argparse
import ast
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

RECORD = Path(__file__).with_name("recorded.json")
COMMAND = "env -u TRITON_INTERPRET python -m tests.kernels.recorded"


class Figures(NamedTuple):
    """Registers and warps of a program, bytes of shared memory, and bytes that a thread spills and loads again."""

    registers: int
    warps: int
    shared: int
    stored: int
    loaded: int


def read() -> dict[str, Figures]:
    """The entries, each named by its architecture, kernel and hash."""
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: Figures(*figures) for name, figures in found.items()}


def write(entries: dict[str, Figures]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in sorted(entries.items()))
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def launched(every: bool) -> dict[str, Any]:
    """The kernels of all pairs by name of their entry; each pair on one card in turn, or on `every` one."""
    from tests.kernels.real_pairs import CARDS, PAIRS

    normalise()
    found = dict[str, Any]()
    for index, pair in enumerate(PAIRS.values()):
        cards = list(CARDS) if every else [list(CARDS)[index % len(CARDS)]]
        for architecture in cards:
            found |= {named(kernel, architecture): (kernel, architecture) for kernel in pair.launches(architecture)}
    return found


def normalise() -> None:
    """Leave out of all kernels what changes no instruction, so that their hashes do not change with it."""
    from triton.runtime import JITFunction

    from specchat.engine import kernels

    for module in pkgutil.iter_modules(kernels.__path__):
        for one in vars(import_module(f"{kernels.__name__}.{module.name}")).values():
            if isinstance(one, JITFunction):
                tree = ast.parse(one.src)
                (function,) = tree.body
                assert isinstance(function, ast.FunctionDef)
                if ast.get_docstring(function) is not None:
                    function.body = function.body[1:]
                one._unsafe_update_src(ast.unparse(tree))
                one.starting_line_number = 1


def named(kernel: Any, architecture: int) -> str:
    """The name of a kernel's entry."""
    import triton

    constants = alike(kernel.constants)
    # Libraries go by their paths.
    options = {name: value for name, value in _options(kernel).items() if name != "extern_libs"}
    parts = kernel.function.cache_key, kernel.signature, constants, kernel.attributes, options
    whole = repr((triton.__version__, *parts))
    return f"sm_{architecture} {kernel.name} {hashlib.sha256(whole.encode()).hexdigest()[:16]}"


def alike(constants: Mapping[Any, Any]) -> dict[Any, Any]:
    """Constants without how far a loop goes, by which no figure differs."""
    return {path: one._replace(span=0) if hasattr(one, "span") else one for path, one in constants.items()}


def _options(kernel: Any) -> dict[str, Any]:
    given = json.loads(kernel.wanted)["options"]
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def figures(kernel: Any, architecture: int) -> Figures:
    """Compile a kernel."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(kernel.function, kernel.signature, kernel.constants, kernel.attributes)
    # A kernel from Triton's cache would have no log of the assembler, which tells of spills.
    knobs.compilation.always_compile = knobs.nvidia.dump_ptxas_log = True
    with contextlib.redirect_stdout(io.StringIO()) as log:
        made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=_options(kernel))
    told = log.getvalue()
    stored, loaded = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)[-1]
    registers = re.findall(r"Used (\d+) registers", told)[-1]
    return Figures(int(registers), made.metadata.num_warps, made.metadata.shared, int(stored), int(loaded))


_LAUNCHED = dict[str, Any]()
"""What child processes compile: they have it from before they were forked."""


def _figures(name: str) -> tuple[str, Figures]:
    return name, figures(*_LAUNCHED[name])


def compiled(launches: dict[str, Any], names: Iterable[str]) -> Iterator[tuple[str, Figures]]:
    """The figures of some of the launches, as they are found."""
    _LAUNCHED.update(launches)
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        yield from pool.imap_unordered(_figures, names)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--look", type=int)
    asked = parser.parse_args()
    from tests.kernels import kept_reports

    entries, found = read(), launched(every=asked.every)
    missing = sorted(set(found) - set(entries))
    if asked.look is not None:
        known = sorted(found) if asked.look < 0 else sorted(set(found) & set(entries))
        sample = known if asked.look < 0 else Random(len(entries)).sample(known, asked.look)
        print(json.dumps({"missing": missing, "launched": len(found), "anew": dict(compiled(found, sample))}))
        return
    kept = {} if asked.anew else {name: entries[name] for name in found if name in entries}
    missing = sorted(set(found) - set(kept))
    for index, (name, one) in enumerate(compiled(found, missing), 1):
        kept[name] = one
        print(f"{index} of {len(missing)}: {name} {one}", file=sys.stderr, flush=True)
        if index % 20 == 0:
            write(kept)
    write(kept)
    kept_reports.update()


if __name__ == "__main__":
    main()

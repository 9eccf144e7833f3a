"""Measures what numba compiles for the demo pair in an empty cache: seconds of the processor by module.

    python -m measure.cpu_compiling

Two processes share this work when the app starts: one has the passes, the other the rest (`engine/cpu/compiled.py`).
"""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from time import process_time

PARTS = ("layers.passes", "threads.dispatch", "drafting.choice", "drafting.chain")


def main() -> None:
    """Print the table."""
    with TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        products, tiles = (import_module(f"specchat.engine.cpu.products.{name}") for name in ("products", "tiles"))
        parts: dict[str, Callable[[], object]] = {
            name: partial(import_module, f"specchat.engine.cpu.{name}") for name in PARTS
        }
        parts["products of float16 weights"] = partial(products.kernels, tiles.FLOAT16)
        print("| | seconds |\n|---|---|")
        total = 0.0
        for name, compile_all in parts.items():
            started = process_time()
            compile_all()
            taken = process_time() - started
            total += taken
            print(f"| {name} | {taken:.2f} |", flush=True)
        print(f"| all | {total:.2f} |")


if __name__ == "__main__":
    main()

"""Compiles, in a process of its own, what the passes do not wait for: numba compiles in one thread at a time."""

from specchat.engine import leash


def main() -> None:
    """Compile and end, or end with the process that started this one, which reads what was compiled from its files."""
    leash.hold(0)
    from specchat.engine.cpu import chain, orders  # noqa: F401
    from specchat.engine.cpu.products import kernels
    from specchat.engine.cpu.tiles import FLOAT16

    kernels(FLOAT16)  # weights of the pair that comes with specchat, which is the first to load

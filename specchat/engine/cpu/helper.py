"""Process that compiles all that the passes do not wait for: numba compiles in one thread at a time."""

from specchat.engine import leash


def main() -> None:
    """Compile into the cache, which the parent process reads, and end; end with the parent too."""
    leash.hold(0)
    from specchat.engine.cpu import chain, dispatch  # noqa: F401
    from specchat.engine.cpu.products import kernels
    from specchat.engine.cpu.tiles import FLOAT16

    kernels(FLOAT16)  # weights of the demo pair, which loads first

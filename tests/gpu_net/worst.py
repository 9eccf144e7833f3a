"""The largest values that may stand where kernels find out where to read and write."""

from collections.abc import Callable

from specchat.engine.decoding.draft import WIDTH
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, PROMPT_ROWS, STATE_SLOTS, TILE_ROWS, VERIFY_ROWS
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from tests.gpu_net.runtime import Launch

NODES = WIDTH * MAX_DRAFT_LENGTH
"""Nodes of a tree that a model runs over, but the first one."""
TOKENS = ("tokens", "fed", "chosen", "candidates", "best_id", "drawn_id", "token", "ids")
LENGTHS = ("length", "start")
LOGGING = ("_step", "_convolve", "_finish", "_keep_entries")
"""Kernels of logs of recurrent states."""
FIXED = {
    "offsets": PROMPT_ROWS - 1,
    "tree": (1 << 63) - 1,
    "paths": -1,
    "drafted": MAX_DRAFT_LENGTH,
    "depth": MAX_DRAFT_LENGTH,
    "parents": MAX_DRAFT_LENGTH,
    "kept": MAX_DRAFT_LENGTH,
    "number": NODES,
    "places": NODES,
    "limit": MAX_DRAFT_LENGTH,
    "last": PROMPT_ROWS - 1,
    "result": 1,
    "integers": 1,
    "eos": -1,
    "scales": 255,
    "low": 255,
}


OF_PAIRS: dict[str, Callable[[Launch], int]] = {
    "used": lambda launch: launch.grid[2],
    "experts": lambda launch: launch.arguments["weight"].planes.low.shape[0] // launch.arguments["weight"].outputs - 1,
    "begins": lambda launch: launch.arguments["sums"].out.shape[-2] - TILE_ROWS,
    "ends": lambda launch: launch.arguments["sums"].out.shape[-2],
    "source": lambda launch: launch.arguments["x"].shape[0] - 1,
}
"""Of the tiles of products of experts: the last pairs, of the last expert and the last row."""


def worst(launch: Launch, name: str) -> float:
    """What stands in each element of an argument."""
    given = launch.leaves
    if name in OF_PAIRS:
        return OF_PAIRS[name](launch)
    if name == "places" and launch.name == "_add_mixture":
        return launch.arguments["of"].made.first.shape[1] - 1
    if name in LENGTHS and launch.name in LOGGING:
        # The first row has the last slot but one of a log.
        return STATE_SLOTS - 2
    if name in LENGTHS:
        # Of a pass of PASS_ROWS rows, the first of which is the last token of the context.
        return int(given.get("capacity", PASS_ROWS + 2)) - PASS_ROWS - 1
    if name in TOKENS:
        return _vocab(launch) - 1
    if name in ("pooled", "place", "above"):
        pool = given["value"].shape[0] if "value" in given else WIDTH
        # What a level appends comes after what there is.
        return pool - WIDTH * WIDTH if launch.name in ("_append", "_expand") else pool - (name != "pooled")
    if name == "path":
        return (1 << given["fed" if "fed" in given else "tokens"].shape[0]) - 1
    if name == "depth" and launch.name == "_expand":
        return MAX_DRAFT_LENGTH - 1  # the level, of as many as a tree may have nodes
    if name == "node":
        # The tokens of a chain are chosen one by one; those of a level, and of a check, together.
        return MAX_DRAFT_LENGTH - 1 if launch.grid[0] == 1 and given["fed"].shape[0] == VERIFY_ROWS + 1 else 0
    return FIXED.get(name, 0)


def _vocab(launch: Launch) -> int:
    given = launch.leaves
    if "vocab" in given:
        return int(given["vocab"])
    return int(given["counts"].shape[0]) if "counts" in given else 1 << 17


assert VERIFY_ROWS == MAX_DRAFT_LENGTH + 1

"""Attention as a step launches it: Qwen3-8B (32 heads, 8 kv, 128 a head), a head of 80, chains and trees."""

from specchat.engine import gpu_shapes
from specchat.engine.kernels import attention, workspace
from tests.kernels.compiled import Case


def _partial(name: str, group: int, dim: int, tree: bool) -> Case:
    pointers = {"query": "*bf16", "keys": "*bf16", "values": "*bf16", "length": "*i32"}
    pointers |= {"tree": "*i64"} if tree else {}
    pointers |= {"skip": "*i32", "best_out": "*fp32", "total_out": "*fp32", "mixed_out": "*fp32"}
    integers = ("rows", "shared_tiles", "heads", "capacity", "stride_split")
    constants = {
        "GROUP": group,
        "DIM": dim,
        "PADDED": workspace.padded(dim),
        "TILE": attention.TILE,
        "KEYS": attention.KEYS,
        "SPLIT": gpu_shapes.SPLIT,
    } | ({} if tree else {"tree": None})
    return Case(
        name=name,
        kernel=attention._partial,
        signature=pointers | dict.fromkeys(integers, "i32") | {"scale": "fp32"} | dict.fromkeys(constants, "constexpr"),
        constants=constants,
        aligned=(*pointers, "heads", "capacity", "stride_split"),
        num_warps=4,
        num_stages=2,
        weights=2 * attention.KEYS * dim,
    )


def _combine(name: str, dim: int, tree: bool) -> Case:
    pointers = {"best_in": "*fp32", "total_in": "*fp32", "mixed_in": "*fp32", "length": "*i32"}
    pointers |= {"tree": "*i64"} if tree else {}
    pointers |= {"skip": "*i32", "out": "*bf16"}
    constants = {
        "DIM": dim,
        "PADDED": workspace.padded(dim),
        "SPLIT": gpu_shapes.SPLIT,
        "CHUNK": attention.CHUNK,
    } | ({} if tree else {"tree": None})
    return Case(
        name=name,
        kernel=attention._combine,
        signature=pointers
        | dict.fromkeys(("heads", "capacity", "stride_split"), "i32")
        | dict.fromkeys(constants, "constexpr"),
        constants=constants,
        aligned=(*pointers, "heads", "capacity", "stride_split"),
        num_warps=1,
    )


CASES = [
    _partial("chain, 128 a head", 4, 128, tree=False),
    _partial("tree, 128 a head", 4, 128, tree=True),
    _partial("chain, 80 a head", 1, 80, tree=False),
    _combine("combine a chain", 128, tree=False),
    _combine("combine a tree", 128, tree=True),
]

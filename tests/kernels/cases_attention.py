"""Attention as a step launches it: Qwen3-8B (32 heads, 8 kv, 128 a head), a head of 80, chains and trees."""

from specchat.engine.kernels import attention, combine, gpu_shapes, workspace
from tests.kernels.compiled import Case


def _absent(tree: bool, windowed: bool) -> dict[str, None]:
    """The arguments that are not given. Caches of layers with a window are rings."""
    return ({} if tree else {"tree": None}) | ({} if windowed else {"window": None, "ring": None})


def _partial(name: str, group: int, dim: int, tree: bool, windowed: bool = False, capped: bool = False) -> Case:
    pointers = {"query": "*bf16", "keys": "*bf16", "values": "*bf16", "length": "*i32"}
    pointers |= {"tree": "*i64"} if tree else {}
    pointers |= {"skip": "*i32", "best_out": "*fp32", "total_out": "*fp32", "mixed_out": "*fp32"}
    integers = ("rows", "shared_tiles", "heads", "capacity", "stride_split")
    constants = {
        "GROUP": group,
        "DIM": dim,
        "PADDED": workspace.padded(dim),
        "TILE": attention.TILE,
        "KEYS": workspace.keys_at_once(dim),
        "SPLIT": gpu_shapes.SPLIT,
    } | _absent(tree, windowed)
    constants |= {} if capped else {"cap": None}
    return Case(
        name=name,
        kernel=attention._partial,
        signature=pointers
        | dict.fromkeys(integers, "i32")
        | {"scale": "fp32"}
        | ({"cap": "fp32"} if capped else {})
        | ({"window": "i32", "ring": "i32"} if windowed else {})
        | dict.fromkeys(constants, "constexpr"),
        constants=constants,
        aligned=(*pointers, "heads", "capacity", "stride_split"),
        num_warps=4,
        num_stages=2,
        weights=2 * workspace.keys_at_once(dim) * dim,
        options={"maxnreg": workspace.registers(dim)},
    )


def _combine(name: str, dim: int, tree: bool, windowed: bool = False, further: bool = False) -> Case:
    """The combination of partial sums; `further` with sinks and with gates, of 4 partial sums."""
    pointers = {"best_in": "*fp32", "total_in": "*fp32", "mixed_in": "*fp32", "length": "*i32"}
    pointers |= {"tree": "*i64"} if tree else {}
    pointers |= {"sinks": "*fp32", "gates": "*fp32"} if further else {}
    pointers |= {"skip": "*i32", "out": "*bf16"}
    strides = ("gates_split", "gates_row") if further else ()
    constants = {
        "DIM": dim,
        "VALUE": dim,
        "PADDED": workspace.padded(dim),
        "SPLIT": gpu_shapes.SPLIT,
        "CHUNK": combine.CHUNK,
        "GATE_SPLITS": 4 if further else 0,
    } | {name: None for name in _absent(tree, windowed) if name != "ring"}
    constants |= {} if further else dict.fromkeys(("sinks", "gates", "gates_split", "gates_row"))
    integers = ("heads", "capacity", "stride_split", *strides, *(("window",) if windowed else ()))
    return Case(
        name=name,
        kernel=combine._combine,
        signature=pointers | dict.fromkeys(integers, "i32") | dict.fromkeys(constants, "constexpr"),
        constants=constants,
        aligned=(*pointers, "heads", "capacity", "stride_split", *strides),
        num_warps=1,
    )


CASES = [
    _partial("chain, 128 a head", 4, 128, tree=False),
    _partial("tree, 128 a head", 4, 128, tree=True),
    _partial("chain, 80 a head", 1, 80, tree=False),
    _partial("chain, 256 a head", 2, 256, tree=False),
    _partial("tree, 256 a head", 2, 256, tree=True),
    _partial("chain, 256 a head, capped", 2, 256, tree=False, capped=True),
    _partial("tree, 256 a head, capped", 2, 256, tree=True, capped=True),
    _partial("chain, 256 a head, window", 2, 256, tree=False, windowed=True),
    _partial("tree, 256 a head, window", 2, 256, tree=True, windowed=True),
    _partial("chain, 128 a head, window", 4, 128, tree=False, windowed=True),
    _partial("tree, 128 a head, window", 4, 128, tree=True, windowed=True),
    _partial("chain, 512 a head", 8, 512, tree=False),
    _partial("tree, 512 a head", 8, 512, tree=True),
    _partial("chain, 512 a head, window", 8, 512, tree=False, windowed=True),
    _partial("tree, 512 a head, window", 8, 512, tree=True, windowed=True),
    _combine("combine a chain", 128, tree=False),
    _combine("combine a tree", 128, tree=True),
    _combine("combine a chain, window", 128, tree=False, windowed=True),
    _combine("combine a tree, window", 128, tree=True, windowed=True),
    _combine("combine a chain, 256 a head", 256, tree=False),
    _combine("combine a tree, 256 a head", 256, tree=True),
    _combine("combine a chain, 256 a head, window", 256, tree=False, windowed=True),
    _combine("combine a tree, 256 a head, window", 256, tree=True, windowed=True),
    _combine("combine a chain, 512 a head", 512, tree=False),
    _combine("combine a tree, 512 a head", 512, tree=True),
    _combine("combine a chain, 512 a head, window", 512, tree=False, windowed=True),
    _combine("combine a tree, 512 a head, window", 512, tree=True, windowed=True),
    _combine("combine a chain, 256 a head, sinks and gates", 256, tree=False, further=True),
    _combine("combine a tree, 256 a head, sinks and gates", 256, tree=True, further=True),
]

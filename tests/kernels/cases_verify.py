"""Verification as a step launches it: a vocabulary of 151,936 tokens (Qwen3)."""

import triton

from specchat.engine.kernels import block, choose, commit, keep, scores
from specchat.engine.kernels.gpu_shapes import END_TOKENS
from specchat.engine.kernels.verify_state import BLOCK, GROUP
from tests.kernels.compiled import Case

VOCAB = 151_936
ROWS = 16
NODES = triton.next_power_of_2(ROWS + 1)
DIM = 128

_OPTIONS = {"fed": "*i32", "depth": "*i32", "length": "*i32", "node": "*i32"}
_OPTIONS |= {"reals": "*fp32", "integers": "*i32", "seed": "*i64"}
_BLOCKS = {"best": "*fp32", "best_id": "*i32", "total": "*fp32", "drawn": "*fp32", "drawn_id": "*i32", "tops": "*fp32"}


def _case(
    name: str,
    kernel: object,
    pointers: dict[str, str],
    integers: tuple[str, ...],
    constants: dict[str, object],
    warps: int,
) -> Case:
    anywhere = ("chosen", "sure", "kept", "norm", "draft_kept", "draft_norm")
    aligned = (*(p for p in pointers if p not in anywhere), *(i for i in integers if i.startswith("stride")))
    types = pointers | dict.fromkeys(integers, "i32") | dict.fromkeys(constants, "constexpr")
    signature = {argument: types[argument] for argument in kernel.arg_names}  # type: ignore[attr-defined]
    # One pass of the loops in `choose` and `block` takes a block of tokens: here a weight is a token.
    return Case(
        name, kernel, signature, constants, aligned, num_warps=warps, weights=BLOCK if "candidates" in signature else 0
    )


def _choose() -> Case:
    return _case(
        "choose and judge",
        choose._choose,
        _OPTIONS
        | _BLOCKS
        | {
            "scores": "*fp32",
            "candidates": "*i32",
            "kept": "*i32",
            "norm": "*fp32",
            "parents": "*i32",
            "drafted": "*i32",
            "sure": "*fp32",
            "chosen": "*i32",
            "draft_scores": "*fp32",
            "draft_kept": "*i32",
            "draft_norm": "*fp32",
        },
        ("purpose", "first_row", "vocab", "stride_scores", "stride_blocks", "stride_tops", "stride_draft"),
        {
            "BLOCK": BLOCK,
            "BLOCKS": triton.next_power_of_2(triton.cdiv(VOCAB, BLOCK)),
            "GROUPS": triton.next_power_of_2(triton.cdiv(VOCAB, GROUP)),
            "GROUP": GROUP,
            "NODES": NODES,
        },
        choose.WARPS,
    )


def _block() -> Case:
    pointers = {"scores": "*fp32", "candidates": "*i32", "kept": "*i32", "norm": "*fp32", "chosen": "*i32"}
    pointers |= {"draft_scores": "*fp32", "draft_kept": "*i32", "draft_norm": "*fp32", "drafted": "*i32"}
    pointers |= {name: _OPTIONS[name] for name in ("fed", "length", "integers", "seed")}
    integers = ("vocab", "stride_scores", "stride_draft")
    return _case("block", block._judge, pointers, integers, {"BLOCK": BLOCK}, block.WARPS)


def _keep(name: str, pointers: dict[str, str], constants: dict[str, object]) -> Case:
    cache = {"keys": "*bf16", "values": "*bf16", "length": "*i32", "result": "*i32", "kept": "*i32"}
    return _case(name, keep._keep, cache | pointers, ("capacity",), {"DIM": DIM, "PADDED": DIM} | constants, 1)


CASES = [
    _case(
        "process",
        scores._process,
        _OPTIONS
        | _BLOCKS
        | {"path": "*i64", "logits": "*fp32", "in_prompt": "*u8", "counts": "*i32", "bias": "*fp32", "scores": "*fp32"},
        ("first_row", "columns", "vocab", "stride_logits", "stride_scores", "stride_blocks", "stride_tops"),
        {"BLOCK": BLOCK, "GROUP": GROUP},
        scores.WARPS,
    ),
    _choose(),
    _block(),
    _case(
        "commit",
        commit._commit,
        dict.fromkeys(
            ("chosen", "fed", "parents", "depth", "drafted", "length", "counts", "eos", "report", "tail", "recent"),
            "*i32",
        )
        | {"path": "*i64"},
        (),
        {"ROWS": ROWS, "SLOTS": NODES, "END_TOKENS": END_TOKENS, "RECENT": ROWS},
        1,
    ),
    _keep("keep by the step's numbers", {}, {"places": None}),
    _keep("keep by a draft's numbers", {"places": "*i32"}, {}),
]

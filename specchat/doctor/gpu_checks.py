"""The checks of `specchat doctor --gpu`, as data; the functions are imported in the process of each check alone."""

from dataclasses import dataclass
from typing import Literal

Needs = Literal["torch", "triton", "kernels", "gpu"]
"""Requirement of a check. "kernels" run on a GPU or in the interpreter."""


@dataclass(frozen=True)
class GpuCheck:
    """A check: `function` is "module:function", `limit_s` the seconds after which it is ended.

    A card that a check that `judges` finds wrong is out of use.
    """

    name: str
    about: str
    function: str
    needs: Needs
    limit_s: float
    judges: bool = False


def _check(name: str, about: str, function: str, needs: Needs, limit_s: float, judges: bool = False) -> GpuCheck:
    return GpuCheck(name, about, f"specchat.engine.gpu_checks.{function}", needs, limit_s, judges)


ENVIRONMENT = _check("environment", "the GPU, or why there is none", "environment:look", "torch", 60)
CHECKS = (
    ENVIRONMENT,
    _check(
        "compile",
        "kernels of the demo pair: registers, stack, spills",
        "compiling:compile_demo",
        "triton",
        480,
        True,
    ),
    _check("quick", "what goes before a first load", "remembered:quick", "kernels", 240, True),
    _check("kernels", "every kernel against its reference", "kernels:all_kernels", "kernels", 240, True),
    _check("rows", "a row alone has the bits that it has in company", "rows:alone", "kernels", 240, True),
    _check("trees", "a tree's nodes have the bits of chains", "rows:trees", "kernels", 240, True),
    _check("captured", "captured graphs write what eager launches write", "demo:captured_and_eager", "gpu", 480, True),
    # One GPU alone has shown how far these may be off: the four below take no card out of use.
    _check("experts", "mixtures against their reference, and rows of them alone", "experts:experts", "kernels", 240),
    _check("blocks", "weights of GGUF files against their reference, and rows alone", "blocks:blocks", "kernels", 480),
    _check("demo-bf16", "the demo in bfloat16: logits and 200 tokens against the CPU", "demo:in_bfloat16", "gpu", 240),
    _check("demo-nf4", "the same with NF4 weights", "demo:in_nf4", "gpu", 240),
    _check("verify-cost", "what a step costs that verifies 1 to 16 tokens", "demo:verify_cost", "gpu", 240),
    _check("bandwidth", "what the memory of the GPU gives a second", "demo:bandwidth", "gpu", 60),
    _check("trace", "where the time of ten steps goes", "demo:trace", "gpu", 240),
    _check("memory", "memory before and after captures", "demo:memory", "gpu", 240),
    GpuCheck(
        "prefetch",
        "passes with weights asked for ahead, and without",
        "specchat.bench.prefetch:prefetches",
        "gpu",
        240,
    ),
    GpuCheck("tune", "trainings against the same on the CPU", "specchat.tune.gpu_check:trainings", "gpu", 240),
)

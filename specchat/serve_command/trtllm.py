"""TensorRT-LLM 1.3: `trtllm-serve` on PyTorch's backend."""

from typing import Any

import yaml

from specchat.serve_command.plan import ServedBy, ServePlan, place, unpassed

TITLE = "TensorRT-LLM"
METHODS = {
    "eagle3": "Eagle3",
    "dflash": "DFlash",
    "mtp": "MTP",
    "draft": "Draft_Target",
    "lookup": "NGram",
    "suffix": "SA",
}
FILE = "trtllm.yaml"


def serve(plan: ServePlan) -> ServedBy:
    """On several hosts a process a GPU, by MPI."""
    config: dict[str, Any] = {"enable_iter_perf_stats": True}
    if plan.context:
        config["max_seq_len"] = plan.context
    if plan.gpus * plan.hosts > 1:
        config |= {"tensor_parallel_size": plan.gpus * plan.hosts, "gpus_per_node": plan.gpus}
    if plan.strategy is not None:
        config["speculative_config"] = speculative_config(plan)
    command = ["trtllm-serve", place(plan.target, TITLE), "--host", "127.0.0.1", "--port", str(plan.port)]
    command += ["--config", FILE]
    where = "here"
    if plan.hosts > 1:
        where = "the first host"
        hosts = ",".join(f"HOST_{number + 1}:{plan.gpus}" for number in range(plan.hosts))
        command = ["mpirun", "-n", str(plan.gpus * plan.hosts), "-H", hosts, "trtllm-llmapi-launch", *command]
    files = {FILE: yaml.safe_dump(config, sort_keys=False)}
    return ServedBy(((where, tuple(command)),), plan.port, {"kind": "trtllm"}, files, unpassed(plan))


def speculative_config(plan: ServePlan) -> dict[str, Any]:
    """`speculative_config` of the LLM API."""
    assert plan.strategy is not None
    found: dict[str, Any] = {
        "decoding_type": METHODS[plan.strategy.name],
        "max_draft_len": plan.draft_length,
    }
    if plan.drafter is not None:
        found["speculative_model"] = place(plan.drafter, TITLE)
    return found

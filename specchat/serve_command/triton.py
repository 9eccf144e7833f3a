"""Triton Inference Server with vLLM's backend: a model repository."""

import json

from specchat.config.errors import ConfigError
from specchat.serve_command import vllm
from specchat.serve_command.plan import ServedBy, ServePlan, place, unpassed

TITLE = "Triton"
METHODS = vllm.METHODS
FOLDER = "triton"
CONFIG = """\
backend: "vllm"
max_batch_size: 0
model_transaction_policy { decoupled: true }
instance_group [ { count: 1 kind: KIND_MODEL } ]
parameters { key: "REPORT_CUSTOM_METRICS" value: { string_value: "true" } }
"""
GPU_SHARE = 0.9


def serve(plan: ServePlan) -> ServedBy:
    """The repository of the model, and the server's command; the model's tokenizer is read by specchat.

    Raises:
        ConfigError: there are several hosts.
    """
    if plan.hosts > 1:
        raise ConfigError("Triton serves a model from one host: start vLLM on several ones, without Triton.")
    model = place(plan.target, TITLE)
    arguments = {"model": model, "gpu_memory_utilization": GPU_SHARE, **vllm.engine_arguments(plan)}
    files = {
        f"{FOLDER}/{plan.name}/config.pbtxt": CONFIG,
        f"{FOLDER}/{plan.name}/1/model.json": json.dumps(arguments, indent=2) + "\n",
    }
    command = (
        "tritonserver",
        "--model-repository",
        FOLDER,
        "--http-address",
        "127.0.0.1",
        "--http-port",
        str(plan.port),
    )
    notes = list(unpassed(plan))
    if plan.target.path is None:
        notes.append("Set tokenizer to a folder with the model's tokenizer: Triton takes prompts as they stand.")
    keys = {"kind": "triton", "model": plan.name, "tokenizer": plan.target.path or "FOLDER"}
    return ServedBy((("here", command),), plan.port, keys, files, tuple(notes))

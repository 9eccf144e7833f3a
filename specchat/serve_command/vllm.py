"""vLLM 0.32: `vllm serve`, on several hosts by Ray."""

from typing import Any

import yaml

from specchat.serve_command.plan import ServedBy, ServePlan, place, unpassed
from specchat.serve_command.shell import as_json

TITLE = "vLLM"
METHODS = {
    "eagle3": "eagle3",
    "dflash": "dflash",
    "dspark": "dspark",
    "eagle": "eagle",
    "mtp": "mtp",
    "draft": "draft_model",
    "lookup": "ngram",
    "suffix": "suffix",
}
RAY_PORT = 6379
RAY_FILE = "ray-serve.yaml"


def speculative_config(plan: ServePlan) -> dict[str, Any]:
    """`--speculative-config`."""
    assert plan.strategy is not None
    method = METHODS[plan.strategy.name]
    found: dict[str, Any] = {"method": method, "num_speculative_tokens": plan.draft_length}
    if plan.drafter is not None:
        found["model"] = place(plan.drafter, TITLE)
    if method == "ngram":
        found |= {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
    return found


def engine_arguments(plan: ServePlan) -> dict[str, Any]:
    """Arguments of the engine itself, by vLLM's names."""
    found: dict[str, Any] = {}
    if plan.context:
        found["max_model_len"] = plan.context
    if plan.gpus > 1:
        found["tensor_parallel_size"] = plan.gpus
    if plan.hosts > 1:
        found |= {"pipeline_parallel_size": plan.hosts, "distributed_executor_backend": "ray"}
    if plan.strategy is not None:
        found["speculative_config"] = speculative_config(plan)
    return found


def serve(plan: ServePlan) -> ServedBy:
    """Serve by vLLM itself; with several hosts also by Ray Serve."""
    model, arguments = place(plan.target, TITLE), engine_arguments(plan)
    command = [
        "vllm",
        "serve",
        model,
        "--served-model-name",
        plan.name,
        "--host",
        "127.0.0.1",
        "--port",
        str(plan.port),
    ]
    for name, value in arguments.items():
        command += [f"--{name.replace('_', '-')}", as_json(value) if isinstance(value, dict) else str(value)]
    command.append("--enable-per-request-metrics")
    if plan.strategy is not None:
        command += ["--per-request-spec-decode-metrics", "detailed"]
    notes = list(unpassed(plan))
    if plan.strategy is not None and METHODS[plan.strategy.name] == "suffix":
        notes.append("This method needs the package arctic-inference beside vLLM.")
    if plan.hosts == 1:
        return ServedBy((("here", tuple(command)),), plan.port, {"kind": "vllm", "model": plan.name}, {}, tuple(notes))
    notes.append(f"{RAY_FILE} serves the same by Ray Serve: serve run {RAY_FILE}, in the place of vllm serve.")
    commands = (
        ("the first host", ("ray", "start", "--head", f"--port={RAY_PORT}")),
        ("each other host", ("ray", "start", f"--address=FIRST_HOST:{RAY_PORT}")),
        ("the first host", tuple(command)),
    )
    files = {RAY_FILE: ray_serve(plan, model, arguments)}
    return ServedBy(commands, plan.port, {"kind": "vllm", "model": plan.name}, files, tuple(notes))


def ray_serve(plan: ServePlan, model: str, arguments: dict[str, Any]) -> str:
    """The configuration of Ray Serve's application for language models."""
    config = {
        "model_loading_config": {"model_id": plan.name, "model_source": model},
        "engine_kwargs": arguments,
        "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}},
    }
    application = {
        "name": "llm",
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }
    options = {"host": "127.0.0.1", "port": plan.port}
    return str(yaml.safe_dump({"http_options": options, "applications": [application]}, sort_keys=False))

"""SGLang 0.5.23: `sglang.launch_server`."""

from specchat.serve_command.plan import ServedBy, ServePlan, place, unpassed

TITLE = "SGLang"
METHODS = {
    "eagle3": "EAGLE3",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
    "eagle": "EAGLE",
    "mtp": "NEXTN",
    "draft": "STANDALONE",
    "ngram": "NGRAM",
}
_CHAINS = ("EAGLE3", "EAGLE", "NEXTN", "STANDALONE")
"""Algorithms that draft token by token."""
INIT_PORT = 20000


def serve(plan: ServePlan) -> ServedBy:
    """A line for each host."""
    command = ["python3", "-m", "sglang.launch_server", "--model-path", place(plan.target, TITLE)]
    command += ["--served-model-name", plan.name, "--host", "127.0.0.1", "--port", str(plan.port), "--enable-metrics"]
    if plan.context:
        command += ["--context-length", str(plan.context)]
    if plan.gpus * plan.hosts > 1:
        command += ["--tp-size", str(plan.gpus * plan.hosts)]
    if plan.strategy is not None:
        command += _speculation(plan, METHODS[plan.strategy.name])
    keys = {"kind": "sglang", "model": plan.name}
    if plan.hosts == 1:
        return ServedBy((("here", tuple(command)),), plan.port, keys, {}, unpassed(plan))
    several = [*command, "--nnodes", str(plan.hosts), "--dist-init-addr", f"FIRST_HOST:{INIT_PORT}", "--node-rank"]
    commands = tuple((f"host {rank + 1}", (*several, str(rank))) for rank in range(plan.hosts))
    return ServedBy(commands, plan.port, keys, {}, unpassed(plan))


def _speculation(plan: ServePlan, algorithm: str) -> list[str]:
    found = ["--speculative-algorithm", algorithm]
    if plan.drafter is not None:
        found += ["--speculative-draft-model-path", place(plan.drafter, TITLE)]
    if algorithm in _CHAINS:
        found += ["--speculative-num-steps", str(plan.draft_length), "--speculative-eagle-topk", "1"]
    # It counts the target's own token as well.
    return [*found, "--speculative-num-draft-tokens", str(plan.draft_length + 1)]

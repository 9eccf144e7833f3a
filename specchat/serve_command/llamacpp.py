"""llama.cpp's `llama-server`, on several hosts by its RPC servers."""

import re

from specchat.config.errors import ConfigError
from specchat.engine.protocol.pair import ModelSource
from specchat.serve_command.plan import ServedBy, ServePlan, unpassed

TITLE = "llama.cpp"
METHODS = {
    "draft": "draft-simple",
    "lookup": "ngram-simple",
    "ngram": "ngram-mod",
}
RPC_PORT = 50052
FOLDER = "gguf"
_LONGEST = {
    "draft-simple": "--spec-draft-n-max",
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}


def serve(plan: ServePlan) -> ServedBy:
    """The files as they are, or as `specchat convert` writes them first."""
    commands: list[tuple[str, tuple[str, ...]]] = []
    if not plan.target.is_gguf:
        convert = ("specchat", "convert", plan.pair.id, "--to", "gguf", "--out", FOLDER)
        commands.append(("here, once", convert))
    command = ["llama-server", "--model", _file(plan, plan.target, "target"), "--alias", plan.name]
    command += ["--host", "127.0.0.1", "--port", str(plan.port), "--metrics", "--slots", "--props"]
    if plan.context:
        command += ["--ctx-size", str(plan.context)]
    if plan.strategy is not None:
        kind = METHODS[plan.strategy.name]
        command += ["--spec-type", kind, _LONGEST[kind], str(plan.draft_length)]
        if plan.drafter is not None:
            command += ["--spec-draft-model", _file(plan, plan.drafter, "draft")]
    notes = list(unpassed(plan))
    if plan.hosts > 1:
        others = ",".join(f"HOST_{number + 2}:{RPC_PORT}" for number in range(plan.hosts - 1))
        command += ["--rpc", others]
        commands.append(("each other host", ("rpc-server", "--host", "0.0.0.0", "--port", str(RPC_PORT))))
        notes.append("rpc-server asks nobody for a key: start it in a network that you trust alone.")
    commands.append(("the first host" if plan.hosts > 1 else "here", tuple(command)))
    return ServedBy(tuple(commands), plan.port, {"kind": "llama.cpp", "model": plan.name}, {}, tuple(notes))


def _file(plan: ServePlan, source: ModelSource, role: str) -> str:
    """The GGUF file of a model.

    Raises:
        ConfigError: only a hub has it.
    """
    if source.is_gguf:
        if source.path is None:
            raise ConfigError(f"{source.label} has to be here first: specchat models pull {plan.pair.id}.")
        return source.path
    return f"{FOLDER}/{re.sub('[^A-Za-z0-9._-]', '-', plan.pair.id)}-{role}-f16.gguf"

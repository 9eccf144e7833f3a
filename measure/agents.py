"""Runs coding agents against `specchat serve`, without a login, and says which of them call a tool and end.

    npm install @anthropic-ai/claude-code @openai/codex opencode-ai @qwen-code/qwen-code \
        @continuedev/cli
    python -m measure.agents node_modules/.bin [--agent claude-code] [--verbose]

The engine is scripted: it answers with a call of the agent's shell that makes a file, and after the result with a
sentence, so that a run says whether requests, streams and calls fit the agent. Each agent has an empty home, the lines
of its recipe, and a minute or two.
"""

import argparse
import asyncio
import json
import os
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specchat.engine.protocol.options import ToolCall, Written
from specchat.engine.protocol.requests import Generate
from specchat.serve.recipes import RECIPES
from tests.fake import INFO, FakeEngine
from tests.serve.conftest import serving

CONTEXT = 100_000
ASKED = "Make a file made.txt with the word made."
SAID = "The file is there."
MAKE = "echo made > made.txt"
LIMIT_S = 180


@dataclass(frozen=True)
class Agent:
    """An agent: its program, the file for its recipe's lines (empty: a shell), the command, and its shell's tool."""

    program: str
    file: str
    command: str
    tool: str
    arguments: dict[str, Any]


AGENTS = {
    "claude-code": Agent(
        "claude", "", f'-p "{ASKED}" --allowedTools Bash', "Bash", {"command": MAKE, "description": "Make a file"}
    ),
    "codex": Agent(
        "codex",
        ".codex/config.toml",
        f'exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "{ASKED}"',
        "exec_command",
        {"cmd": MAKE},
    ),
    "opencode": Agent(
        "opencode", "work/opencode.json", f'run "{ASKED}"', "bash", {"command": MAKE, "description": "Make a file"}
    ),
    "qwen-code": Agent(
        "qwen",
        "",
        f'-p "{ASKED}" --yolo',
        "run_shell_command",
        {"command": MAKE, "is_background": False, "description": "Make a file"},
    ),
    "continue": Agent("cn", ".continue/config.yaml", f'-p "{ASKED}" --auto', "Bash", {"command": MAKE}),
}


class Shell(FakeEngine):
    """An engine that makes a call where it is asked with the tool, and else says the sentence."""

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        super().__init__(info=replace(INFO, context=CONTEXT))
        self._call = ToolCall("abcdefgh1", tool, json.dumps(arguments))
        self.seen: list[str] = []

    def _generate(self, request: Generate) -> None:
        offered = any(tool.name == self._call.name for tool in request.tools)
        calls = offered and not any(message.role == "tool" for message in request.messages)
        self.seen.append(f"{len(request.tools)} tools, {len(request.messages)} messages: {'call' if calls else 'text'}")
        answer = Written(tool_calls=(self._call,)) if calls else Written(SAID)
        self._replies = iter([answer])  # type: ignore[assignment]
        super()._generate(request)


def _run(agent: Agent, lines: str, programs: Path, home: Path, verbose: bool) -> str:
    """Run an agent in `home`; the end in words."""
    work = home / "work"
    work.mkdir()
    script = "set -e\n"
    if agent.file:
        file = home / agent.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    else:
        script += "\n".join(lines.splitlines()[:-1]) + "\n"
    own = "" if agent.file else lines.splitlines()[-1].removeprefix(agent.program)
    script += f"{programs / agent.program}{own} {agent.command}\n"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "IS_SANDBOX": "1", "TERM": "dumb"}
    begun = time.monotonic()
    try:
        ended = subprocess.run(
            ["bash", "-c", script], cwd=work, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not end in {LIMIT_S} s"
    made = (work / "made.txt").exists()
    if verbose or not made:
        print(ended.stdout[-2000:], ended.stderr[-2000:], sep="\n")
    told = SAID in ended.stdout
    what = f"{'made' if made else 'did not make'} the file, {'showed' if told else 'did not show'} the answer"
    return f"ended with {ended.returncode} after {time.monotonic() - begun:.0f} s; {what}"


async def _tried(name: str, programs: Path, verbose: bool) -> None:
    agent = AGENTS[name]
    engine = Shell(agent.tool, agent.arguments)
    version = subprocess.run([programs / agent.program, "--version"], capture_output=True, text=True, check=False)
    async with serving(engine) as server:
        lines = RECIPES[name].filled(server.url, "demo", CONTEXT)
        with TemporaryDirectory() as home:
            ended = await asyncio.to_thread(_run, agent, lines, programs, Path(home), verbose)
    print(f"{RECIPES[name].title} {version.stdout.strip()}: {ended}; {len(engine.seen)} requests", flush=True)
    if verbose:
        print(*engine.seen, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="the folder with the agents' programs")
    parser.add_argument("--agent", choices=list(AGENTS))
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for name in [options.agent] if options.agent else AGENTS:
        asyncio.run(_tried(name, options.programs.resolve(), options.verbose))


if __name__ == "__main__":
    main()

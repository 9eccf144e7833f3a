"""A server of before 2026, without a package: it starts at once, and knows no server/discover."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ASKED = {
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "elicitation/create": {"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def asks() -> str:
    """Ask the client for things; gives its answers."""
    answers = []
    for number, (method, params) in enumerate(ASKED.items()):
        send({"id": f"own-{number}", "method": method, "params": params})
        while (answer := json.loads(sys.stdin.readline())).get("id") != f"own-{number}":
            pass
        answers.append("refused" if "error" in answer else f"given {answer['result']}")
    return ", ".join(answers)


def starts_child() -> str:
    """Start a process that stays; gives its id."""
    code = "import time; time.sleep(1000)"
    return str(subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL).pid)


def hangs() -> str:
    """Hang for good, with the file CALLED as a sign."""
    Path(os.environ["CALLED"]).touch()
    while True:
        time.sleep(1000)


TOOLS: dict[str, Callable[[], str]] = {
    "asks": asks,
    "hangs": hangs,
    "says": lambda: "said",
    "starts_child": starts_child,
}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "older", "version": "1"},
    },
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]},
}


def main() -> None:
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "tools/call":
            text = TOOLS[request["params"]["name"]]()
            send({"id": request["id"], "result": {"content": [{"type": "text", "text": text}]}})
        elif request["method"] in RESULTS:
            send({"id": request["id"], "result": RESULTS[request["method"]]})
        else:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()

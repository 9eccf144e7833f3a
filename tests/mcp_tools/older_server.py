"""A server of before 2026, without a package: it knows no server/discover, and asks the client for things in a call."""

import json
import sys
from typing import Any

ASKED = {
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "elicitation/create": {"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "older", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "asks", "inputSchema": {"type": "object"}}]},
}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def asked() -> str:
    """The client's answers to each request of this server."""
    answers = []
    for number, (method, params) in enumerate(ASKED.items()):
        send({"id": f"own-{number}", "method": method, "params": params})
        while (answer := json.loads(sys.stdin.readline())).get("id") != f"own-{number}":
            pass
        answers.append("refused" if "error" in answer else f"given {answer['result']}")
    return ", ".join(answers)


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "tools/call":
        send({"id": request["id"], "result": {"content": [{"type": "text", "text": asked()}]}})
    elif request["method"] in RESULTS:
        send({"id": request["id"], "result": RESULTS[request["method"]]})
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})

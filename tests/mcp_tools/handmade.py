"""A server by hand, for what MCP's own package does not send: `handmade.py PAGES RESULT`.

PAGES is a JSON list of answers to `tools/list`, the last of them for all later requests; RESULT answers each call.
"""

import json
import sys

pages, result = json.loads(sys.argv[1]), sys.argv[2]
for line in sys.stdin:
    request = json.loads(line)
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            about = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "m", "version": "1"},
            }
            answer = f'"result": {json.dumps(about)}'
        case "tools/list":
            answer = f'"result": {json.dumps(pages.pop(0) if len(pages) > 1 else pages[0])}'
        case "tools/call":
            answer = f'"result": {result}'
        case _:
            answer = '"error": {"code": -32601, "message": "no"}'
    if "id" in request:
        print(f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, {answer}}}', flush=True)

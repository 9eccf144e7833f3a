"""The call with which chat templates are probed: words that no template contains."""

import json

from specchat.engine.protocol.options import Message, Tool

NAME, KEY, VALUE, COUNT = "brackenlook", "willowkey", "thistlesaid", "mossnumber"
"""The function, its arguments' names, and the value of the first; that of the second is 7."""
RESULT = "Sorreltold"
ID, LONG_ID = "abcdefgh1", "call_abcdefgh12345"
SCHEMA = {
    "type": "object",
    "properties": {KEY: {"type": "string"}, COUNT: {"type": "integer"}},
    "required": [KEY],
}
TOOL = Tool(NAME, "Look.", json.dumps(SCHEMA))
ARGUMENTS = {KEY: VALUE, COUNT: 7}
ASKED = Message("user", "Ombrasket")
ANSWERED = Message("assistant", "Tamblewick")
AGAIN = Message("user", "Gorsehaven")

"""Exit codes: the one place that gives them, with docs/cli.md written from it."""

from enum import IntEnum

from specchat.engine.errors import ErrorKind


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    UNUSABLE = 3
    CONTEXT = 4
    DIED = 5
    DIFFERENT = 6
    NO_TERMINAL = 7
    MEMORY = 8
    DOWNLOAD = 9
    SERVER = 10
    CUT = 11
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done; also when the reader of the output closed it early",
    ExitCode.ERROR: "an error that specchat did not expect; the message names the file with the details",
    ExitCode.USAGE: "an option, argument, input, output or strategy that cannot be used",
    ExitCode.UNUSABLE: "a configuration file, the chats' database, a pair or a model that cannot be used; "
    "doctor --gpu: a check went wrong",
    ExitCode.CONTEXT: "the prompt does not fit the model's context",
    ExitCode.DIED: "the engine process ended by itself",
    ExitCode.DIFFERENT: "check, bench: a reply differed from plain decoding, or its distribution from the model's; "
    "check: a server's text differs from the one that it writes without drafting",
    ExitCode.NO_TERMINAL: "the app needs a terminal",
    ExitCode.MEMORY: "memory ran out",
    ExitCode.DOWNLOAD: "a model is not here and could not be downloaded, or nobody agreed to it",
    ExitCode.SERVER: "a server elsewhere cannot be reached, or did not answer as it should",
    ExitCode.CUT: "ask --schema: the answer was cut, and is the beginning of a JSON text, not all of it",
    ExitCode.HUNG_UP: "the terminal was closed",
    ExitCode.INTERRUPTED: "interrupted with ctrl+c",
    ExitCode.TERMINATED: "ended by SIGTERM",
}

BY_KIND: dict[ErrorKind, ExitCode] = {
    "config": ExitCode.UNUSABLE,
    "model": ExitCode.UNUSABLE,
    "context": ExitCode.CONTEXT,
    "memory": ExitCode.MEMORY,
    "download": ExitCode.DOWNLOAD,
    "request": ExitCode.USAGE,
    "server": ExitCode.SERVER,
    "died": ExitCode.DIED,
    "internal": ExitCode.ERROR,
}

"""The JSON schema of `specchat ask --schema`."""

from pathlib import Path

from specchat.clean import one_line
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem
from specchat.engine.errors import EngineError
from specchat.engine.grammar.source import MAX_CHARACTERS, check
from specchat.engine.options import Grammar
from specchat.reading import read_text

MAX_BYTES = 4 * MAX_CHARACTERS
"""A character has four bytes at most."""


def read_schema(path: Path) -> Grammar:
    """The schema in a file.

    Raises:
        Problem: the file cannot be read, or is no schema that replies can be held to.
    """
    name = one_line(str(path))
    try:
        grammar = Grammar("json_schema", read_text(path.expanduser(), MAX_BYTES, pipes=True))
        check(grammar)
    except UnicodeDecodeError as error:
        raise Problem(f"{name} is not UTF-8 text (byte {error.start}).", ExitCode.USAGE) from None
    except OSError as error:
        raise Problem(f"{name} cannot be read ({error.strerror}). Check the path.", ExitCode.USAGE) from None
    except EngineError as error:
        raise Problem(f"{name}: {error.message}", ExitCode.USAGE) from None
    return grammar

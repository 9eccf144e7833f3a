"""TOML files, read; a user's file is checked, whatever ships with specchat was by its tests."""

import re
import tomllib
from pathlib import Path
from typing import Any

from specchat.config.errors import ConfigError
from specchat.config.kinds import Kind
from specchat.config.paths import is_shipped
from specchat.reading import read_text

MOST_BYTES = 1 << 18
"""Bytes of a configuration file at most: room for some 1,000 pairs."""
_DEEP = re.compile(r"""^[ \t\[]*(?:[\w"'-]+[.]){100}""", re.MULTILINE)
"""A key of so many parts that reading it would take minutes: the time grows with the square of their number."""


def read_tables(path: Path, kind: Kind, *, optional: bool = False) -> dict[str, Any]:
    """The contents of a configuration file by its keys; nothing where an `optional` one does not exist.

    Raises:
        ConfigError: the file is missing, unreadable or not TOML, or a key or value in it is wrong.
    """
    data = read_toml(path, optional=optional)
    if is_shipped(path) or (optional and not data):
        return data
    from specchat.config.checks import checked  # a sixth of the app's start
    from specchat.config.tables import FILES

    return checked(FILES[kind], data, path)


def read_toml(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The contents of a TOML file; nothing where an `optional` one does not exist.

    Raises:
        ConfigError: the file is missing, unreadable or not TOML; a syntax error names its line.
    """
    try:
        text = read_text(path, MOST_BYTES, pipes=True)
        if _DEEP.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        if optional:
            return {}
        raise ConfigError(f"{path} does not exist. Check the path.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Check that it is a file you may read.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    except ValueError:  # of Python's, for integers of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: it holds a number that is too long.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply.") from None

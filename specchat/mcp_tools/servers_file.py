"""mcp.json: the servers that a user has, as other MCP clients have them too."""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from specchat.clean import one_line
from specchat.config.errors import ConfigError
from specchat.config.files import MOST_BYTES
from specchat.dataclass import dataclass
from specchat.reading import read_text

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_HTTP = ("http", "streamable-http", "streamableHttp")
_MOST_SERVERS = 50


@dataclass(frozen=True)
class ServerEntry:
    """A server: a `command` to run, or the `url` of one that speaks Streamable HTTP.

    Variables stand as in the file: `resolved` puts their values in.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    disabled: bool = False
    problem: str = ""
    """Why it cannot be used, in a sentence."""

    @property
    def place(self) -> str:
        """The command line or address, as the file has it: for people, and to tell servers apart."""
        return self.url or " ".join([self.command, *self.args])

    def resolved(self, environ: Mapping[str, str]) -> "ServerEntry":
        """The entry with the values of its `${VARIABLE}`s.

        Raises:
            ConfigError: a variable is not set, and the file gives no default for it.
        """

        def value(text: str) -> str:
            return _VARIABLE.sub(lambda match: _value(match, environ), text)

        return ServerEntry(
            self.name,
            value(self.command),
            tuple(value(arg) for arg in self.args),
            {key: value(text) for key, text in self.env.items()},
            str(Path(value(self.cwd)).expanduser()) if self.cwd else "",
            value(self.url),
            {key: value(text) for key, text in self.headers.items()},
        )


def _value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    value = environ.get(match["name"], match["default"])
    if value is None:
        raise ConfigError(f"The environment variable {match['name']} is not set.")
    return value


def read_servers(path: Path) -> tuple[ServerEntry, ...]:
    """The servers of `path` in its order; none where there is no such file. One with a mistake has a `problem`.

    Raises:
        ConfigError: the file cannot be read, or is no such file.
    """
    try:
        data = json.loads(read_text(path, MOST_BYTES, pipes=True))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Check that it is a file you may read.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path} is not valid JSON ({place}: {one_line(error.msg)}).") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{path} is not valid JSON: it is nested too deeply, or a number is too long.") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{path} has no object "mcpServers".')
    return tuple(_entry(name, about) for name, about in list(servers.items())[:_MOST_SERVERS])


def _entry(name: str, about: object) -> ServerEntry:
    """The entry, or one with the first mistake in it. Keys of other clients are left alone."""
    name = one_line(name, 60) or "unnamed"
    if not isinstance(about, dict):
        return ServerEntry(name, problem="It should be an object with a command or a url.")
    found: dict[str, Any] = {}
    for key, right, words in _KEYS:
        value = about.get(key)
        if value is None:
            continue
        if not right(value):
            return ServerEntry(name, problem=f"{key} should be {words}.")
        found[key] = tuple(value) if key == "args" else value
    kind = found.pop("type", "")
    entry = ServerEntry(name, **found)
    return ServerEntry(name, **found, problem=_mistake(entry, kind))


def _mistake(entry: ServerEntry, kind: str) -> str:
    if kind == "sse":
        return "The transport sse is not supported; most such servers also have Streamable HTTP."
    if kind not in ("", "stdio", *_HTTP):
        return f'type should be "stdio" or "http", not "{one_line(kind, 40)}".'
    if bool(entry.command) == bool(entry.url):
        return "It needs a command or a url" + (", not both." if entry.command else ".")
    if entry.url and "${" not in entry.url[:2] and not entry.url.startswith(("http://", "https://")):
        return "url should begin with http:// or https://."
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_KEYS = (
    ("type", _is_text, "text"),
    ("command", _is_text, "text"),
    ("args", lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of texts"),
    ("env", _are_texts, "an object of texts"),
    ("cwd", _is_text, "text"),
    ("url", _is_text, "text"),
    ("headers", _are_texts, "an object of texts"),
    ("disabled", lambda value: isinstance(value, bool), "true or false"),
)

"""mcp.json, as people have it from other programs."""

import json
from pathlib import Path

import pytest

from specchat.config.errors import ConfigError
from specchat.mcp_tools.servers_file import ServerEntry, read_servers


def written(path: Path, servers: object) -> Path:
    file = path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_servers_of_both_kinds_are_read_in_order(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {
            "files": {"command": "npx", "args": ["-y", "server", "~/notes"], "env": {"A": "${KEY}"}, "cwd": "~/x"},
            "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
            "off": {"type": "stdio", "command": "x", "disabled": True, "autoApprove": ["everything"], "timeout": 5},
        },
    )
    files, web, off = read_servers(file)
    assert files == ServerEntry("files", "npx", ("-y", "server", "~/notes"), {"A": "${KEY}"}, "~/x")
    assert web.url == "https://example.org/mcp"
    assert (off.disabled, off.problem) == (True, "")
    assert files.resolved({"KEY": "k"}).env == {"A": "k"}
    assert files.resolved({"KEY": "k"}).cwd == str(Path("~/x").expanduser())
    assert web.resolved({"KEY": "k"}).headers == {"Authorization": "Bearer k"}
    assert "k" not in web.place + files.place.replace("npx", "")


def test_variables_have_values_or_defaults() -> None:
    entry = ServerEntry("a", "${BIN:-/bin}/x", ("${A}-${B:-b}", "$A", "${}"))
    assert entry.resolved({"A": "1"}).command == "/bin/x"
    assert entry.resolved({"A": "1", "B": ""}).args == ("1-", "$A", "${}")
    with pytest.raises(ConfigError, match="environment variable A is not set"):
        entry.resolved({})


def test_without_the_file_there_are_no_servers(tmp_path: Path) -> None:
    assert read_servers(tmp_path / "mcp.json") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON (line 1, column 2"),
        ("[]", 'has no object "mcpServers"'),
        ('{"mcpServers": []}', 'has no object "mcpServers"'),
        ('{"a":' * 20_000, "is not valid JSON"),
        ("\xff", "is not UTF-8 text"),
    ],
)
def test_a_wrong_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        read_servers(file)
    assert str(file) in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ("npx", "It should be an object with a command or a url."),
        ({}, "It needs a command or a url."),
        ({"command": "a", "url": "http://b"}, "It needs a command or a url, not both."),
        ({"command": ["a"]}, "command should be text."),
        ({"command": "a", "args": "b"}, "args should be a list of texts."),
        ({"command": "a", "env": {"A": 1}}, "env should be an object of texts."),
        ({"command": "a\0"}, "command should be text."),
        ({"url": "file:///etc"}, "url should begin with http:// or https://."),
        ({"type": "sse", "url": "http://a"}, "The transport sse is not supported"),
        ({"type": "x\x1b", "url": "http://a"}, 'type should be "stdio" or "http", not "x␛".'),
    ],
)
def test_a_mistake_costs_one_server_only(about: object, problem: str, tmp_path: Path) -> None:
    wrong, good = read_servers(written(tmp_path, {"wrong\x1b": about, "good": {"command": "a"}}))
    assert wrong.name == "wrong␛"
    assert wrong.problem.startswith(problem)
    assert good.problem == ""

"""The tools that each chat may use: whether it uses any, of which servers, and which need no asking in it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Tool
from specchat.mcp_tools.served import ServedTool, by_name, fingerprints_of
from specchat.mcp_tools.servers import ToolServers, ToolServerStatus


@dataclass(frozen=True)
class ToolChoices:
    """A chat's choices, saved with it."""

    on: bool = False
    without: frozenset[str] = frozenset()
    """Servers that are turned off in it."""
    always: frozenset[str] = frozenset()
    """Fingerprints of tools that are called in it without asking."""

    @classmethod
    def of(cls, data: object, usual: "ToolChoices") -> "ToolChoices":
        """The choices that `data` tells; `usual` where it tells none."""
        if not isinstance(data, dict) or not isinstance(data.get("on"), bool):
            return usual
        return cls(data["on"], _texts(data.get("without")), _texts(data.get("always")))

    @property
    def data(self) -> dict[str, Any]:
        """The choices as JSON data."""
        return {"on": self.on, "without": sorted(self.without), "always": sorted(self.always)}


def _texts(data: object) -> frozenset[str]:
    return frozenset(each for each in data if isinstance(each, str)) if isinstance(data, list) else frozenset()


class ChatTools:
    """`servers` have the tools; no chat uses any unless its user, or for new chats `usual`, says so."""

    def __init__(self, servers: ToolServers | None = None, *, usual: bool = False) -> None:
        self.servers = servers or ToolServers(())
        self.usual = ToolChoices(usual)
        self._choices: dict[str, ToolChoices] = {}

    def of(self, chat: str) -> ToolChoices:
        """The choices of the chat with this key."""
        return self._choices.get(chat, self.usual)

    def opened(self, chat: str, data: object) -> None:
        """A chat was opened that was saved with `data`; what was chosen since counts more."""
        self._choices.setdefault(chat, ToolChoices.of(data, self.usual))

    def use(self, chat: str, on: bool) -> None:
        """Use tools in a chat, or none any more."""
        self._choices[chat] = replace(self.of(chat), on=on)

    def use_server(self, chat: str, name: str, on: bool) -> None:
        """Use the tools of a server in a chat, or not any more, which takes back what needed no asking.

        A server that failed is started again.
        """
        choices = self.of(chat)
        without = choices.without - {name} if on else choices.without | {name}
        always = frozenset(each for each in choices.always if on or not each.startswith(fingerprints_of(name)))
        self._choices[chat] = replace(choices, without=without, always=always)
        if on and choices.on:
            self.servers.start([name])

    def permit(self, chat: str, tool: ServedTool) -> None:
        """Call a tool in a chat without asking from now on."""
        choices = self.of(chat)
        self._choices[chat] = replace(choices, always=choices.always | {tool.fingerprint})

    def permitted(self, chat: str, tool: ServedTool) -> bool:
        """True if the tool is called in the chat without asking."""
        return tool.fingerprint in self.of(chat).always

    def used(self, chat: str) -> Mapping[str, ToolServerStatus]:
        """The servers that a chat uses, by name."""
        choices = self.of(chat)
        if not choices.on:
            return {}
        statuses = self.servers.statuses
        return {name: status for name, status in statuses.items() if name not in choices.without}

    def ready(self, chat: str) -> bool:
        """Start what the chat uses and does not run; True if the tools are known as far as they will be."""
        used = self.used(chat)
        self.servers.start(
            name for name, status in used.items() if status.state in ("off", "ended") and not status.problem
        )
        return not any(status.state == "starting" for status in self.used(chat).values())

    def problems(self, chat: str) -> list[str]:
        """A sentence for each server of a chat that gives no tools."""
        failed = (status for status in self.used(chat).values() if status.state == "ended" and not status.tools)
        return [
            f"The tools of {status.entry.name} cannot be used: {status.problem}" for status in failed if status.problem
        ]

    def offered(self, chat: str) -> dict[str, ServedTool]:
        """The tools that the chat's model may call, by their names for it."""
        return by_name(tool for status in self.used(chat).values() for tool in status.tools)

    def for_model(self, chat: str) -> tuple[Tool, ...]:
        """The same as the engine takes them."""
        return tuple(Tool(name, tool.description, tool.schema) for name, tool in self.offered(chat).items())

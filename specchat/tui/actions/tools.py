"""Tools that models call: the servers they come from, and the answers to what is asked."""

from specchat.clean import one_line
from specchat.config.errors import ConfigError
from specchat.mcp_tools.servers_file import read_servers
from specchat.tui.action import Action
from specchat.tui.screens.chat import ChatScreen

_ON_OFF = {"on": "use tools in this chat", "off": "use none"}


def _tools(chat: ChatScreen, argument: str) -> None:
    from specchat.tui.screens.tools import ToolsScreen

    session = chat.session
    if argument in _ON_OFF:
        session.use_tools(argument == "on")
        chat.say(f"tools are {argument} in this chat")
    elif argument:
        chat.say(f"/tools takes on or off, not {one_line(argument, 40)}", bad=True)
    else:
        chat.app.push_screen(ToolsScreen(session, _read_again(chat)), lambda _: _changed(chat))
    _changed(chat)


def _read_again(chat: ChatScreen) -> str:
    """Take in what was changed in mcp.json; gives a sentence where it is wrong."""
    session = chat.session
    if session.launch.config.tools_file is None:
        return ""
    try:
        session.tools.servers.update(read_servers(session.launch.config.tools_file))
    except ConfigError as error:
        return error.message
    session.tools.ready(session.conversation.key)
    return ""


def _changed(chat: ChatScreen) -> None:
    """Other tools are other tokens."""
    chat.composer.count_soon()
    chat.redraw()


TOOLS: tuple[Action[ChatScreen], ...] = (
    Action("tools", "Tools", "Servers whose tools the model may call here, each call asked.", _tools,
           slash="tools", argument="on or off", values=lambda _: list(_ON_OFF.items())),
    Action("call-once", "Call once", "Let the tool be called this time.",
           lambda chat, _: chat.permissions.answer("once"), ("alt+y",), where="call"),
    Action("call-always", "Call always", "Let the tool be called in this chat without asking.",
           lambda chat, _: chat.permissions.answer("always"), ("alt+a",), where="call"),
    Action("call-not", "Do not call", "Tell the model that you do not want the call.", keys=("escape",), where="call",
           fixed=True),
)  # fmt: skip

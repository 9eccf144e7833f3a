"""Which programs hand text to the system's clipboard."""

from collections.abc import Mapping

_TOOLS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)


def clipboard_tools(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Commands that take text on standard input, best first; none over SSH, where the clipboard is elsewhere."""
    if environ.get("SSH_CONNECTION"):
        return []
    return [command for display, command in _TOOLS if not display or environ.get(display)]

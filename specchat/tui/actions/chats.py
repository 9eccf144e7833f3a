"""Chats as a whole: the list of them, new ones, names, copies, deleting, and chats to and from files."""

from specchat.tui.actions.action import Action

CHATS = (
    Action("new-chat", "New chat", "Start an empty chat.", ("alt+n",), hint="new", slash="new", when="begun"),
    Action("chats", "Chats", "Show or hide the list of chats.", ("ctrl+b",), hint="chats", slash="chats"),
    Action("search-chats", "Search chats", "Search titles and messages of all chats.", ("f9",), slash="search"),
    Action("open-chat", "Open", "Open the chat.", ("enter",), hint="open", where="chats", fixed=True),
    Action("find-in-list", "Search", "Go to the search box.", ("/",), hint="search", where="chats"),
    Action("rename-chat", "Rename chat", "Give the chat another title.", ("r",), hint="rename", slash="rename",
           argument="title", where="chats"),
    Action("pin-chat", "Pin chat", "Keep the chat at the top, or no longer.", ("p",), hint="pin", slash="pin",
           where="chats"),
    Action("duplicate-chat", "Duplicate chat", "Copy the chat and open the copy.", ("c",), hint="copy",
           slash="duplicate", where="chats"),
    Action("delete-chat", "Delete chat", "Delete the chat; for a day it can be brought back.", ("d", "delete"),
           hint="delete", slash="delete", where="chats"),
    Action("undelete-chat", "Bring back chat", "Bring back the chat deleted last.", ("u",), hint="undo",
           slash="undelete", where="chats"),
    Action("export-chat", "Export chat",
           "Write the chat to a new file: its shown path as Markdown or HTML, or everything as JSON.", slash="export",
           argument="md, html or json, file name"),
    Action("import-chats", "Import chats", "Add chats from an export of specchat or ChatGPT, or from Markdown.",
           slash="import", argument="file name"),
)  # fmt: skip

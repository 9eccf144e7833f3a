"""Chats as a whole: the list of them, new ones, names, copies and deleting."""

import sqlite3

from specchat.chat.schema import in_words
from specchat.chat.tags import changed, shown_tags, tags_in
from specchat.clean import one_line
from specchat.tui.action import Action
from specchat.tui.screens.chat import ChatScreen
from specchat.tune.shelf import saw


def _target(chat: ChatScreen) -> str | None:
    """The key of the chat under the list's cursor, else of the open one; None, with a message, where that is empty."""
    marked = chat.sidebar.marked
    if marked is not None:
        return marked
    if chat.session.conversation.turns:
        return chat.session.conversation.key
    chat.say("this chat is still empty", bad=True)
    return None


def _rename(chat: ChatScreen, name: str) -> None:
    from specchat.tui.screens.ask import AskScreen

    key = _target(chat)
    if key is None:
        return

    def named(text: str | None) -> None:
        if text is not None and (new := one_line(text, 80)):
            chat.session.chats.rename(key, new).wait(1)
            chat.draw_chats()
            chat.draw_rows()

    if name:
        named(name)
        return
    entry = chat.session.chat.saving.store.row(key)
    chat.app.push_screen(AskScreen("rename chat", entry.title if entry else ""), named)


def _pin(chat: ChatScreen, _: str) -> None:
    if (key := _target(chat)) is not None:
        store = chat.session.chat.saving.store
        row = store.row(key)
        pinned = row is None or not row.pinned
        store.pin(key, pinned).wait(1)
        chat.draw_chats()
        chat.say("pinned" if pinned else "not pinned any more")


def _tag(chat: ChatScreen, words: str) -> None:
    from specchat.tui.screens.ask import AskScreen

    store, key = chat.session.chat.saving.store, _target(chat)
    if key is None:
        return
    row = store.row(key)
    before = row.tags if row is not None else ()

    def tagged(tags: tuple[str, ...]) -> None:
        store.tag(key, tags).wait(1)
        chat.draw_chats()
        chat.say(f"tags: {shown_tags(tags)}" if tags else "no tags")

    def named(text: str | None) -> None:
        if text is not None:
            tagged(tags_in(text))

    if words:
        tagged(changed(before, words))
    else:
        chat.app.push_screen(AskScreen("tags of the chat, such as work/reports", " ".join(before)), named)


def _with_tag(chat: ChatScreen, _: str) -> None:
    """List the chats that have the first tag of the marked one."""
    row = chat.session.chat.saving.store.row(chat.sidebar.marked or "")
    chat.chats.search(f"#{row.tags[0]}" if row is not None and row.tags else "#")


def _tags(chat: ChatScreen, before: str) -> list[tuple[str, str]]:
    return [(f"{before}{tag}", "") for tag in chat.session.chat.saving.store.tags()]


def _duplicate(chat: ChatScreen, _: str) -> None:
    if (key := _target(chat)) is not None:
        if chat.session.replies.of(key) is not None:
            chat.say("that chat is being answered: it can be copied once that has ended", bad=True)
            return
        try:
            copy, done = chat.session.chats.duplicate(key)
        except KeyError:
            chat.say("that chat is not there any more", bad=True)
            return
        done.wait(1)
        chat.chats.open(copy)
        if chat.session.conversation.key == copy:
            chat.say("this is the copy; the chat itself is in the list")


def _delete(chat: ChatScreen, _: str) -> None:
    if (key := _target(chat)) is not None:
        chat.chats.delete(key)
        undo = chat.keys.first("undelete-chat")
        tuning = chat.session.launch.tuning
        trained = saw(tuning.shelf, key) if tuning else ""
        chat.say(
            "; ".join(
                filter(None, (f"chat deleted; undo with /undelete{f' or {undo} in the list' * bool(undo)}", trained))
            )
        )


def _undelete(chat: ChatScreen, _: str) -> None:
    store = chat.session.chat.saving.store
    try:
        done = chat.session.chats.undelete()
    except sqlite3.Error as error:
        chat.say(in_words(error, store.path), bad=True)
        return
    if done is None:
        chat.say("no chat was deleted within a day", bad=True)
        return
    done.wait(1)
    chat.draw_chats()
    chat.say("chat restored")


CHATS: tuple[Action[ChatScreen], ...] = (
    Action("new-chat", "New chat", "Start an empty chat.", lambda chat, _: chat.chats.new(), ("alt+n",), hint="new",
           slash="new", when="begun"),
    Action("chats", "Chats", "Show or hide the list of chats.", lambda chat, _: chat.chats.toggle(), ("ctrl+b",),
           hint="chats", slash="chats"),
    Action("search-chats", "Search chats", "Search all chats, or those with a tag: #work fox.",
           lambda chat, words: chat.chats.search(words), ("f9",), slash="search", argument="words",
           values=lambda chat: _tags(chat, "#")),
    Action("open-chat", "Open", "Open the chat.", lambda chat, _: chat.sidebar.list.action_select(), ("enter",),
           hint="open", where="chats", fixed=True),
    Action("find-in-list", "Search", "Go to the search box.", lambda chat, _: chat.chats.search(), ("/",),
           hint="search", where="chats"),
    Action("rename-chat", "Rename chat", "Give the chat another title.", _rename, ("r",), hint="rename", slash="rename",
           argument="title", where="chats"),
    Action("pin-chat", "Pin chat", "Keep the chat at the top, or no longer.", _pin, ("p",), hint="pin", slash="pin",
           where="chats"),
    Action("tag-chat", "Tags", "Give the chat tags, as work/reports; -old takes one away.",
           _tag, ("t",), hint="tags", slash="tag", argument="tags", where="chats", values=lambda chat: _tags(chat, "")),
    Action("with-tag", "With this tag", "List the chats that have the first tag of this one.", _with_tag, ("f",),
           where="chats"),
    Action("duplicate-chat", "Duplicate chat", "Copy the chat and open the copy.", _duplicate, ("c",), hint="copy",
           slash="duplicate", where="chats"),
    Action("delete-chat", "Delete chat", "Delete the chat; it can be restored for a day.", _delete,
           ("d", "delete"), hint="delete", slash="delete", where="chats"),
    Action("undelete-chat", "Restore chat", "Restore the chat deleted last.", _undelete, ("u",), hint="undo",
           slash="undelete", where="chats"),
)  # fmt: skip

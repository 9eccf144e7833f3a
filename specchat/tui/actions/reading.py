"""Reading: moving through the transcript, finding, jumping, copying, opening, looking into tokens."""

from specchat.chat.reasoning import Reasoning, marked
from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.tui.action import Action
from specchat.tui.editor import EditorError, edit_text, suffix_of
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.text.calls import called_by
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.thoughts import fold_of
from specchat.tui.widgets.transcript import Transcript


def _copy(chat: ChatScreen, text: str, what: str) -> None:
    """Put `text` into the clipboard; the status row says what became of it."""
    chat.post_message(Transcript.CopyAsked(text, what))


def _copy_message(chat: ChatScreen, _: str) -> None:
    said = chat.transcript.said
    if said is None:
        return
    if said.by == "you":
        _copy(chat, said.turn.content, "prompt")
    elif said.turn.reply is not None:
        _copy_text(chat, said.turn.reply)


def copy_reply(chat: ChatScreen, *, reasoning: bool = False) -> None:
    """The last reply's text, without its reasoning unless that is wanted too."""
    _copy_text(chat, chat.session.last_reply, reasoning=reasoning)


def _copy_text(chat: ChatScreen, reply: Reply | None, *, reasoning: bool = False) -> None:
    if reply is None or not reply.text:
        chat.say("there is no reply to copy yet", bad=True)
        return
    wanted = clean(marked(reply)) if reasoning else Reasoning(reply).answer
    if not wanted:
        chat.say("there is only reasoning in this reply; /commands, copy reply with reasoning", bad=True)
    else:
        by = f" by {one_line(reply.name, 40)}" if reply.name else ""
        _copy(chat, wanted, f"reply{by}{' with reasoning' if reasoning else ''}")


def _copy_code(chat: ChatScreen, _: str) -> None:
    line = chat.transcript.line
    if line is None or line.code is None:
        chat.say("there is no code block under the cursor", bad=True)
    else:
        _copy(chat, line.code.text, "code")


def _open_in_editor(chat: ChatScreen, _: str) -> None:
    """The code block under the cursor, or the call of a tool, else the message."""
    line, said = chat.transcript.line, chat.transcript.said
    call = called_by(said.turn.reply, fold_of(line)) if line and said and said.turn.reply else ""
    if call:
        _look_at(chat, call, ".txt")
    elif line is not None and line.code is not None:
        _look_at(chat, line.code.text, suffix_of(line.code.language))
    elif said is not None:
        reply = said.turn.reply
        _look_at(chat, said.turn.content if said.by == "you" or reply is None else clean(marked(reply)), ".md")


def _look_at(chat: ChatScreen, text: str, suffix: str) -> None:
    try:
        edited = edit_text(chat.app, text, suffix)
    except EditorError as error:
        chat.say(str(error), bad=True)
        return
    if edited is not None:
        chat.say("what you changed in the editor is not kept: the chat stays as it was said")


def _edit_prompt(chat: ChatScreen, _: str) -> None:
    prompt = chat.prompt
    try:
        edited = edit_text(chat.app, prompt.prompt, ".md")
    except EditorError as error:
        chat.say(str(error), bad=True)
        return
    chat.set_focus(prompt)
    if edited is not None:
        prompt.fill(edited)


def _choose_message(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.messages import MessagesScreen

    def chosen(said: Said | None) -> None:
        if said is not None:
            chat.reading.go_to(said)

    turns = chat.session.conversation.turns
    if not turns:
        chat.say("there are no messages yet", bad=True)
        return
    chat.app.push_screen(MessagesScreen(turns), chosen)


READING: tuple[Action[ChatScreen], ...] = (
    Action("read", "Read", "Go to the transcript; tab does too.", lambda chat, _: chat.reading.start(), ("ctrl+up",)),
    Action("find", "Find", "Find words in the chat; capitals count where you type any.",
           lambda chat, words: chat.reading.find(words), ("ctrl+f",), slash="find", argument="words"),
    Action("edit-in-editor", "Edit in editor", "Write the prompt in $VISUAL or $EDITOR.", _edit_prompt, ("ctrl+l",),
           slash="editor"),
    Action("jump-to-message", "Jump to message", "Choose a message and go there.", _choose_message, slash="jump"),
    Action("copy-reply-with-reasoning", "Copy reply with reasoning", "Copy all that the model wrote last.",
           lambda chat, _: copy_reply(chat, reasoning=True)),
    # In the transcript
    Action("to-prompt", "Back to prompt", "Go back to the prompt; esc does too.",
           lambda chat, _: chat.reading.to_prompt(), ("i",), hint="prompt", where="transcript"),
    Action("act", "Unfold, open", "Unfold the reasoning, file or call, or show the link, in the row; else go back.",
           lambda chat, _: chat.reading.enter(), ("enter",), where="transcript"),
    Action("row-down", "Row down", "Move down.", lambda chat, _: chat.transcript.move(1), ("j", "down"), hint="down",
           where="transcript"),
    Action("row-up", "Row up", "Move up.", lambda chat, _: chat.transcript.move(-1), ("k", "up"), hint="up",
           where="transcript"),
    Action("half-page-down", "Half page down", "Move down half a screen.",
           lambda chat, _: chat.transcript.move_pages(0.5), ("ctrl+d",), where="transcript"),
    Action("half-page-up", "Half page up", "Move up half a screen.", lambda chat, _: chat.transcript.move_pages(-0.5),
           ("ctrl+u",), where="transcript"),
    Action("top", "Top", "Go to the beginning of the chat.", lambda chat, _: chat.transcript.top(), ("g", "home"),
           where="transcript"),
    Action("bottom", "Bottom", "Go to the end of the chat and follow it.", lambda chat, _: chat.transcript.bottom(),
           ("G", "end"), where="transcript"),
    Action("next-message", "Next message", "Go to the next message.",
           lambda chat, _: chat.transcript.go_to_next_message(1), ("]", "J"), hint="next", where="transcript"),
    Action("previous-message", "Previous message", "Go to the previous message.",
           lambda chat, _: chat.transcript.go_to_next_message(-1), ("[", "K"), hint="previous", where="transcript"),
    Action("copy-message", "Copy message", "Copy the message under the cursor, with its files, without its reasoning.",
           _copy_message, ("y",), hint="copy", where="transcript"),
    Action("copy-code", "Copy code", "Copy the code block under the cursor.", _copy_code, ("c",), hint="code",
           where="transcript", when="on code"),
    Action("open-in-editor", "Open in editor", "Look at the code block or message under the cursor in your editor.",
           _open_in_editor, ("o",), hint="open", where="transcript"),
    Action("find-here", "Find", "Find words in the chat.", lambda chat, _: chat.reading.find(), ("/",), hint="find",
           where="transcript"),
    Action("next-match", "Next match", "Go to the next match.", lambda chat, _: chat.reading.step(1), ("n",),
           where="transcript"),
    Action("previous-match", "Previous match", "Go to the previous match.", lambda chat, _: chat.reading.step(-1),
           ("N",), where="transcript"),
    Action("jump", "Jump", "Letters on what is in view: go to the message, copy the code, show the link.",
           lambda chat, _: chat.reading.jump(), ("f",), hint="jump", where="transcript"),
    Action("choose-message", "Jump to message", "Choose a message and go there.", _choose_message, ("m",),
           where="transcript"),
    Action("fold", "Fold", "Show or hide the reasoning of the message, or the file, under the cursor.",
           lambda chat, _: chat.reading.fold(), ("z",), hint="fold", where="transcript", when="on fold"),
    Action("tokens-here", "Tokens here", "The token view at the row under the cursor, and back.",
           lambda chat, _: chat.reading.look_into_tokens(), ("t",), hint="tokens", where="transcript"),
    Action("next-token", "Next token", "In the token view: the next token, with what is known of its step.",
           lambda chat, _: chat.transcript.move_token(1), ("l", "right"), hint="next token", where="transcript",
           when="in tokens"),
    Action("previous-token", "Previous token", "In the token view: the token before.",
           lambda chat, _: chat.transcript.move_token(-1), ("h", "left"), hint="previous", where="transcript",
           when="in tokens"),
    Action("next-step", "Next step", "In the token view: the first token of the next verify step.",
           lambda chat, _: chat.transcript.move_step(1), ("w",), hint="next step", where="transcript",
           when="in tokens"),
    Action("previous-step", "Previous step", "In the token view: the first token of the verify step before.",
           lambda chat, _: chat.transcript.move_step(-1), ("b",), hint="previous", where="transcript",
           when="in tokens"),
)  # fmt: skip

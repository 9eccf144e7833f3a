"""Reading: moving through the transcript, finding, jumping, copying, opening, looking into tokens."""

from specchat.chat.reasoning import Reasoning
from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.tui.actions.verb import Verb
from specchat.tui.editor import EditorError, edit_text, suffix_of
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.verbs.choosing import choose_message
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
    wanted = clean(reply.marked) if reasoning else Reasoning(reply).answer
    if not wanted:
        chat.say("there is only reasoning in this reply; /commands, copy reply with reasoning", bad=True)
    else:
        _copy(chat, wanted, "reply with reasoning" if reasoning else "reply")


def _copy_code(chat: ChatScreen, _: str) -> None:
    line = chat.transcript.line
    if line is None or line.code is None:
        chat.say("there is no code block under the cursor", bad=True)
    else:
        _copy(chat, line.code.text, "code")


def _open_in_editor(chat: ChatScreen, _: str) -> None:
    """The code block under the cursor, else the message."""
    line, said = chat.transcript.line, chat.transcript.said
    if line is not None and line.code is not None:
        _look_at(chat, line.code.text, suffix_of(line.code.language))
    elif said is not None:
        reply = said.turn.reply
        _look_at(chat, said.turn.content if said.by == "you" or reply is None else clean(reply.marked), ".md")


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


READING: dict[str, Verb[ChatScreen]] = {
    "read": Verb(lambda chat, _: chat.reading.start()),
    "find": Verb(lambda chat, words: chat.reading.find(words)),
    "edit-in-editor": Verb(_edit_prompt),
    "jump-to-message": Verb(lambda chat, _: choose_message(chat)),
    "copy-reply-with-reasoning": Verb(lambda chat, _: copy_reply(chat, reasoning=True)),
    # In the transcript
    "to-prompt": Verb(lambda chat, _: chat.reading.to_prompt()),
    "act": Verb(lambda chat, _: chat.reading.enter()),
    "row-down": Verb(lambda chat, _: chat.transcript.move(1)),
    "row-up": Verb(lambda chat, _: chat.transcript.move(-1)),
    "half-page-down": Verb(lambda chat, _: chat.transcript.move_pages(0.5)),
    "half-page-up": Verb(lambda chat, _: chat.transcript.move_pages(-0.5)),
    "top": Verb(lambda chat, _: chat.transcript.top()),
    "bottom": Verb(lambda chat, _: chat.transcript.bottom()),
    "next-message": Verb(lambda chat, _: chat.transcript.go_to_next_message(1)),
    "previous-message": Verb(lambda chat, _: chat.transcript.go_to_next_message(-1)),
    "copy-message": Verb(_copy_message),
    "copy-code": Verb(_copy_code),
    "open-in-editor": Verb(_open_in_editor),
    "find-here": Verb(lambda chat, _: chat.reading.find()),
    "next-match": Verb(lambda chat, _: chat.reading.step(1)),
    "previous-match": Verb(lambda chat, _: chat.reading.step(-1)),
    "jump": Verb(lambda chat, _: chat.reading.jump()),
    "choose-message": Verb(lambda chat, _: choose_message(chat)),
    "fold": Verb(lambda chat, _: chat.reading.fold()),
    "tokens-here": Verb(lambda chat, _: chat.reading.look_into_tokens()),
    "next-token": Verb(lambda chat, _: chat.transcript.move_token(1)),
    "previous-token": Verb(lambda chat, _: chat.transcript.move_token(-1)),
    "next-step": Verb(lambda chat, _: chat.transcript.move_step(1)),
    "previous-step": Verb(lambda chat, _: chat.transcript.move_step(-1)),
}

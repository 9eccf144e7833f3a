"""Actions of reading: finding, jumping, copying, opening, looking into tokens."""

from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit

from specchat.clean import clean
from specchat.tui.editor import EditorError, edit_text, suffix_of
from specchat.tui.finder import Finder
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.inspect import inspected
from specchat.tui.text.markdown import is_web_link
from specchat.tui.text.reasoning import Reasoning, without_reasoning
from specchat.tui.widgets.find_bar import FindBar
from specchat.tui.widgets.rows import Inspector

if TYPE_CHECKING:
    from specchat.tui.app import SpecchatApp
    from specchat.tui.screens.chat import ChatScreen
    from specchat.tui.widgets.transcript import Transcript


class Reading:
    """The chat screen's part that works on the transcript."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat
        self._finder = Finder()
        self._from_prompt = False
        self._link = ""
        """Shown in the status row; opened when it is activated once more."""

    @property
    def _transcript(self) -> "Transcript":
        return self._chat.transcript

    @property
    def _bar(self) -> FindBar:
        return self._chat.query_one(FindBar)

    # Coming and going

    def start(self) -> None:
        if not self._chat.session.conversation.turns:
            self._chat.say("there is nothing to read yet", bad=True)
            return
        self._chat.set_focus(self._transcript)

    def to_prompt(self) -> None:
        self._chat.set_focus(self._chat.prompt)

    def leave(self) -> bool:
        """End the innermost thing there is to end; False when there is none."""
        transcript = self._transcript
        if transcript.labelled:
            transcript.end_labels()
            self._chat.say("")
        elif self._link:
            self._chat.say("")
        elif self._chat.has_class("-finding"):
            self.end_find()
        elif transcript.has_focus:
            self.to_prompt()
        else:
            return False
        return True

    def cursor_moved(self) -> None:
        """Something else is under the cursor, or the focus came or went."""
        self.show_token()
        if not self._transcript.has_focus:
            self._link = ""

    def show_token(self) -> None:
        """Say below the transcript what is known of the token under the cursor."""
        transcript = self._transcript
        token = transcript.token if transcript.has_focus else None
        self._chat.set_class(token is not None, "-inspecting")
        if token is not None and token[0].reply is not None:
            self._chat.query_one(Inspector).show(inspected(token[0].reply, token[1]))

    # Finding

    def find(self, query: str = "") -> None:
        """Open the row to type in, for `query` at first or what was looked for last."""
        if not self._chat.session.conversation.turns:
            self._chat.say("there is nothing to find words in yet", bad=True)
            return
        self._chat.add_class("-finding")
        self._bar.start(query)
        if self._bar.query_text:
            self.look_for(self._bar.query_text)

    def look_for(self, query: str) -> None:
        if not self._chat.has_class("-finding"):
            return
        transcript = self._transcript
        here = transcript.offset_at(round(transcript.scroll_y))
        self._finder.look_for(query)
        transcript.mark(self._finder.pattern)
        match = self._finder.nearest(self._chat.session.conversation, *(here or (None, 0)))
        if match is not None:
            transcript.go_to_match(match, unfold=False)
        self.count()

    def step(self, direction: Literal[-1, 1]) -> None:
        if not self._chat.has_class("-finding") or self._finder.pattern is None:
            self._chat.say("nothing is looked for: / finds", bad=True)
            return
        match = self._finder.step(self._chat.session.conversation, direction)
        if match is not None:
            self._transcript.go_to_match(match)
        self.count()

    def count(self) -> None:
        """Say how many matches there are, where words are looked for."""
        if self._chat.has_class("-finding"):
            self._bar.show_count(self._finder.words(self._chat.session.conversation))

    def accept(self) -> None:
        """Go on among the matches with the transcript's keys."""
        if self._finder.pattern is None:
            self.end_find()
        else:
            self._chat.set_focus(self._transcript)
            if self._finder.current is not None:
                self._transcript.go_to_match(self._finder.current)

    def end_find(self) -> None:
        self._transcript.mark(None)
        self._finder.look_for("")
        if self._bar.has_focus_within:
            self._chat.set_focus(self._transcript)
        self._chat.remove_class("-finding")

    # Jumping

    def jump(self) -> None:
        if not self._transcript.start_labels():
            self._chat.say("there is nothing to jump to here", bad=True)
            return
        self._chat.say("type a letter: it goes to the message, copies the code or shows the link")

    def choose_message(self) -> None:
        from specchat.tui.screens.messages import MessagesScreen

        turns = self._chat.session.conversation.turns
        if not turns:
            self._chat.say("there are no messages yet", bad=True)
            return
        self._chat.app.push_screen(MessagesScreen(turns), self._message_chosen)

    def _message_chosen(self, said: Said | None) -> None:
        if said is not None and said.turn in self._chat.session.conversation.turns:
            self._chat.set_focus(self._transcript)
            self._transcript.go_to_said(said)

    # What is under the cursor

    def enter(self) -> None:
        """Unfold reasoning or a file, show or open a link, else go back to the prompt."""
        transcript = self._transcript
        if self._link:
            self.link(self._link)
        elif transcript.on_fold:
            transcript.toggle_fold(transcript.cursor)
        elif transcript.link:
            self.link(transcript.link)
        else:
            self.to_prompt()

    def fold(self) -> None:
        said = self._transcript.said
        reply = said.turn.reply if said else None
        found = Reasoning()
        found.feed(reply.text if reply else "", ended=True)
        if self._transcript.on_fold or found.thoughts or found.thinking:
            self._transcript.toggle_fold(self._transcript.cursor)
        else:
            self._chat.say("there is no reasoning in this message", bad=True)

    def link(self, url: str) -> None:
        """Show where a link leads; open it when it was shown."""
        if not is_web_link(url) or clean(url) != url or any(char.isspace() for char in url):
            self._chat.say("only plain web links are opened", bad=True)
            return
        if url == self._link:
            self._chat.say(f"opening {url}")
            self._chat.app.open_url(url)
            if self._from_prompt:
                self.to_prompt()
            return
        self._from_prompt = not self._transcript.has_focus
        self._chat.set_focus(self._transcript)
        long = len(url) > self._chat.size.width - 20
        self._chat.say(f"enter opens {f'a page of {_host(url)}: ' * long}{url}")
        if long:
            self._chat.app.notify(url, title="enter opens", markup=False)
        self._link = url

    def message_gone(self) -> None:
        """The status row shows something else: a link in it is not on the screen any more."""
        self._link = ""

    def copy(self, text: str, what: str) -> None:
        """Put `text` into the clipboard; the status row says what became of it."""
        cast("SpecchatApp", self._chat.app).copy_to_clipboard(text, what)

    def copy_message(self) -> None:
        said = self._transcript.said
        if said is None:
            return
        if said.by == "you":
            self.copy(said.turn.content, "prompt")
        elif said.turn.reply is not None:
            self.copy_reply(said.turn.reply.text)

    def copy_reply(self, text: str, *, reasoning: bool = False) -> None:
        """A reply's text, without its reasoning unless that is wanted too."""
        wanted = text if reasoning else without_reasoning(text)
        if not text:
            self._chat.say("there is no reply to copy yet", bad=True)
        elif not wanted:
            self._chat.say("there is only reasoning in this reply; ctrl+p, copy reply with reasoning", bad=True)
        else:
            self.copy(wanted, "reply with reasoning" if wanted == text and reasoning else "reply")

    def copy_code(self) -> None:
        line = self._transcript.line
        if line is None or line.code is None:
            self._chat.say("there is no code block under the cursor", bad=True)
        else:
            self.copy(line.code.text, "code")

    def open_in_editor(self) -> None:
        """The code block under the cursor, else the message."""
        line, said = self._transcript.line, self._transcript.said
        if line is not None and line.code is not None:
            self._edit(line.code.text, suffix_of(line.code.language))
        elif said is not None:
            reply = said.turn.reply
            self._edit(said.turn.content if said.by == "you" or reply is None else reply.text, ".md")

    def _edit(self, text: str, suffix: str) -> None:
        try:
            edited = edit_text(self._chat.app, text, suffix)
        except EditorError as error:
            self._chat.say(str(error), bad=True)
            return
        if edited is not None:
            self._chat.say("what you changed in the editor is not kept: the chat stays as it was said")

    def edit_prompt(self) -> None:
        prompt = self._chat.prompt
        try:
            edited = edit_text(self._chat.app, prompt.prompt, ".md")
        except EditorError as error:
            self._chat.say(str(error), bad=True)
            return
        self._chat.set_focus(prompt)
        if edited is not None:
            prompt.fill(edited)

    # Tokens

    def look_into_tokens(self, row: int | None = None) -> None:
        """The token view at the text of `row`, or of the cursor's; from there back to the text."""
        transcript = self._transcript
        here = transcript.offset_at(transcript.cursor if row is None else row)
        self._chat.toggle_token_view()
        self._chat.set_focus(transcript)
        if here is not None:
            transcript.go_to_text(*here)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"

"""The chat as it is read: transcript, its steps, what is looked for in it, and what is under its cursor."""

from typing import Literal
from urllib.parse import urlsplit

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from specchat.chat.reasoning import Reasoning
from specchat.chat.tree import Conversation
from specchat.clean import clean, is_web_link
from specchat.tui.finder import Finder
from specchat.tui.keys import Keys
from specchat.tui.notice import Notice
from specchat.tui.text.chat_rows import Said
from specchat.tui.widgets.find_bar import FindBar
from specchat.tui.widgets.rows import Inspector, Legend
from specchat.tui.widgets.step_strip import StepStrip
from specchat.tui.widgets.transcript import Transcript


class Reader(Vertical):
    """Says what it has to say by `notice`; the focus goes to `prompt` where reading ends."""

    def __init__(self, conversation: Conversation, notice: Notice, prompt: Widget, keys: Keys) -> None:
        super().__init__(id="reading")
        self.transcript = Transcript(conversation, keys)
        self._keys = keys
        self._strip = StepStrip()
        self._bar = FindBar()
        self._inspector = Inspector()
        self._notice = notice
        self._prompt = prompt
        self._finder = Finder()
        self._typing = False
        """True if a prompt was being written when words were looked for first."""
        self._from_prompt = False
        self._link = ("", 0)
        """A link and the number of the notice that shows it; opened when it is activated once more."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="text"):
            yield self.transcript
            yield self._strip
        yield self._bar
        yield Legend()
        yield self._inspector

    def on_mount(self) -> None:
        self.watch(self.transcript, "scroll_y", lambda _: self.draw_steps(), init=False)

    @property
    def conversation(self) -> Conversation:
        return self.transcript.chat_rows.conversation

    # Drawing

    def sync(self) -> None:
        """Draw what changed, and in the token view its steps and what is known of the token under the cursor."""
        self.transcript.sync()
        self.draw_steps()
        self._show_token()

    def draw_steps(self) -> None:
        if self.transcript.token_view:
            self._strip.show(self.transcript.stretch())

    def _show_token(self) -> None:
        """Say below the transcript what is known of the token under the cursor."""
        token = self.transcript.token if self.transcript.has_focus else None
        self.set_class(token is not None, "-inspecting")
        if token is not None and token[0].reply is not None:
            self._inspector.look_at(token[0].reply, token[1])

    # Coming and going

    def start(self) -> None:
        """Put the focus on the transcript."""
        if not self.conversation.turns:
            self._notice.say("there is nothing to read yet", bad=True)
            return
        self._focus()

    def _focus(self) -> None:
        self.screen.set_focus(self.transcript)

    def to_prompt(self) -> None:
        self.screen.set_focus(self._prompt)

    def leave(self) -> bool:
        """End the innermost thing there is to end; False when there is none."""
        transcript = self.transcript
        if transcript.labelled:
            transcript.end_labels()
            self._notice.say("")
        elif self._shown_link:
            self._notice.say("")
        elif self.has_class("-finding"):
            self.end_find()
        elif transcript.has_focus:
            self.to_prompt()
        else:
            return False
        return True

    @on(Transcript.CursorMoved)
    def _cursor_moved(self) -> None:
        """Something else is under the cursor, or the focus came or went."""
        self._show_token()
        if not self.transcript.has_focus:
            self._link = ("", 0)
        self.draw_steps()

    # Finding

    def find(self, query: str = "") -> None:
        """Open the row to type in, for `query` at first or what was looked for last."""
        if not self.conversation.turns:
            self._notice.say("there is nothing to find words in yet", bad=True)
            return
        self._typing = self._prompt.has_focus or (self._typing and self.has_class("-finding"))
        self.add_class("-finding")
        self._bar.start(query)
        if self._bar.query_text:
            self._look_for(self._bar.query_text)

    @on(FindBar.Changed)
    def _typed(self, event: FindBar.Changed) -> None:
        self._look_for(event.query)

    def _look_for(self, query: str) -> None:
        if not self.has_class("-finding"):
            return
        transcript = self.transcript
        here = transcript.offset_at(round(transcript.scroll_y))
        self._finder.look_for(query)
        transcript.mark(self._finder.pattern)
        match = self._finder.nearest(self.conversation, *(here or (None, 0)))
        if match is not None:
            transcript.go_to_match(match, unfold=False)
        self.count()

    @on(FindBar.Stepped)
    def _stepped(self, event: FindBar.Stepped) -> None:
        self.step(event.direction)

    def step(self, direction: Literal[-1, 1]) -> None:
        """Go to the match after (1) or before (-1) the one gone to last."""
        if not self.has_class("-finding") or self._finder.pattern is None:
            self._notice.say(f"nothing is looked for: {self._keys.named('find-here')} finds", bad=True)
            return
        match = self._finder.step(self.conversation, direction)
        if match is not None:
            self.transcript.go_to_match(match)
        self.count()

    def count(self) -> None:
        """Say how many matches there are, where words are looked for."""
        if self.has_class("-finding"):
            self._bar.show_count(self._finder.words(self.conversation))

    @on(FindBar.Accepted)
    def _accept(self) -> None:
        """Go on among the matches with the transcript's keys."""
        if self._finder.pattern is None:
            self.end_find()
        else:
            self._focus()
            if self._finder.current is not None:
                self.transcript.go_to_match(self._finder.current)

    def end_find(self) -> None:
        self.transcript.mark(None)
        self._finder.look_for("")
        if self._bar.has_focus_within:
            self.screen.set_focus(self._prompt if self._typing else self.transcript)
        self.remove_class("-finding")

    # Going elsewhere

    def jump(self) -> None:
        """Put letters on what is in view."""
        if not self.transcript.start_labels():
            self._notice.say("there is nothing to jump to here", bad=True)
            return
        self._notice.say("type a letter: it goes to the message, copies the code or shows the link")

    def go_to(self, said: Said) -> None:
        """Put the focus and the cursor on a message, where it is still shown."""
        if said.turn in self.conversation.turns:
            self._focus()
            self.transcript.go_to_said(said)

    # What is under the cursor

    def enter(self) -> None:
        """Unfold reasoning, a file or a call, show or open a link, else go back to the prompt."""
        transcript = self.transcript
        if self._shown_link:
            self.link(self._shown_link)
        elif transcript.on_fold:
            transcript.toggle_fold(transcript.cursor)
        elif transcript.link:
            self.link(transcript.link)
        else:
            self.to_prompt()

    def fold(self) -> None:
        """Fold or unfold the reasoning, file or call under the cursor."""
        said = self.transcript.said
        reply = said.turn.reply if said else None
        if self.transcript.on_fold or (reply is not None and Reasoning(reply).any):
            self.transcript.toggle_fold(self.transcript.cursor)
        else:
            self._notice.say("there is no reasoning in this message", bad=True)

    @property
    def _shown_link(self) -> str:
        """The link that the status row shows; empty where it shows something else."""
        link, number = self._link
        return link if number == self._notice.number else ""

    @on(Transcript.LinkAsked)
    def _link_asked(self, event: Transcript.LinkAsked) -> None:
        self.link(event.url)

    def link(self, url: str) -> None:
        """Show where a link leads; open it when it was shown."""
        if not is_web_link(url) or clean(url) != url or any(char.isspace() for char in url):
            self._notice.say("only plain web links are opened", bad=True)
            return
        if url == self._shown_link:
            self._notice.say(f"opening {url}")
            self.app.open_url(url)
            if self._from_prompt:
                self.to_prompt()
            return
        self._from_prompt = not self.transcript.has_focus
        self._focus()
        long = len(url) > self.screen.size.width - 20
        opens = f"{self._keys.named('act')} opens"
        self._notice.say(f"{opens} {f'a page of {_host(url)}: ' * long}{url}")
        if long:
            self.app.notify(url, title=opens, markup=False)
        self._link = (url, self._notice.number)

    # Tokens

    def toggle_token_view(self) -> None:
        """Show where each token came from, or the text again."""
        token_view = not self.transcript.token_view
        self.set_class(token_view, "-tokens")
        self.transcript.show(self.conversation, token_view=token_view)
        self._show_token()
        self.call_after_refresh(self.draw_steps)
        self._notice.say(f"token view: {self._keys.named('token-view')} goes back" if token_view else "")

    @on(Transcript.TokensAsked)
    def _tokens_asked(self, event: Transcript.TokensAsked) -> None:
        self.look_into_tokens(event.row)

    def look_into_tokens(self, row: int | None = None) -> None:
        """The token view at the text of `row`, or of the cursor's; from there back to the text."""
        transcript = self.transcript
        here = transcript.offset_at(transcript.cursor if row is None else row)
        self.toggle_token_view()
        self._focus()
        if here is not None:
            transcript.go_to_text(*here)

    @on(StepStrip.Clicked)
    def _step_clicked(self, event: StepStrip.Clicked) -> None:
        self._focus()
        self.transcript.go_to_step(event.reply, event.step)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"

"""A cursor that goes from token to token in the token view, and from verify step to verify step."""

from dataclasses import replace
from typing import Literal, cast

from textual.content import Content

from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.tui.keys import Keys
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.heat import Stretch
from specchat.tui.text.inspect import cells_of, token_at
from specchat.tui.text.tokens import Token, TokenSection
from specchat.tui.widgets.cursor_view import CursorView


class TokenCursor(CursorView):
    """The token stays the same one while its line grows and when the rows are laid out anew."""

    def __init__(self, conversation: Conversation, keys: Keys) -> None:
        super().__init__(conversation, keys)
        self.token: tuple[TokenSection, Token] | None = None
        """The token under the cursor, in the token view."""

    def sync(self) -> None:
        super().sync()
        self._keep_token()
        if self.has_focus:
            self.arrived()

    def relaid(self) -> None:
        self._keep_token()
        if self.token is not None and self.has_focus and not self.following:
            row = self._row_of_token(*self.token)
            self.cursor = self.cursor if row is None else row
        super().relaid()
        if self.has_focus:
            self.arrived()

    # Moving

    def move_token(self, direction: Literal[-1, 1]) -> None:
        """Go to the token before or after the one under the cursor, in this line or the next one with any.

        From a row without tokens, to the nearest one that way, or the other way where there is none.
        """
        if self.token is None:
            if not self._enter_tokens(direction):
                self._enter_tokens(-direction)
            return
        (section, token), sections = self.token, self.chat_rows.window.sections
        index, at = sections.index(section), section.tokens.index(token) + direction
        while self.chat_rows.window.start_of(index) is not None:
            other = sections[index]
            tokens = other.tokens if isinstance(other, TokenSection) else ()
            at = at if other is section else (0 if direction > 0 else len(tokens) - 1)
            while 0 <= at < len(tokens):
                if (tokens[at].step, tokens[at].piece) != (token.step, token.piece):
                    self._take_token(cast(TokenSection, other), tokens[at])
                    return
                at += direction
            index += direction

    def move_step(self, direction: Literal[-1, 1]) -> None:
        """Go to the first token of the verify step before or after the one under the cursor."""
        if self.token is None or self.token[0].reply is None:
            self.move_token(direction)
            return
        reply, step = self.token[0].reply, self.token[1].step + direction
        if 0 <= step < len(reply.steps):
            self.go_to_step(reply, step)

    def go_to_step(self, reply: Reply, step: int) -> None:
        """Put the cursor on the first token that verify step number `step` of a reply wrote."""
        if reply.turn is None:
            return
        self.go_to_text(Said(reply.turn, "model"), reply.offsets[step])
        found, sections = self.chat_rows.window.section_at(self.cursor), self.chat_rows.window.sections
        for section in sections[found[0] :] if found else ():
            if isinstance(section, TokenSection) and section.reply is reply:
                token = next((token for token in section.tokens if token.step >= step), None)
                if token is not None:
                    self._take_token(section, token)
                    return

    def _enter_tokens(self, direction: int) -> bool:
        """Go to the nearest token above (-1) or below the cursor's row; False without any there."""
        found, window = self.chat_rows.window.section_at(self.cursor), self.chat_rows.window
        index = found[0] if found else 0
        while window.start_of(index) is not None:
            section = window.sections[index]
            if isinstance(section, TokenSection) and section.tokens:
                self._take_token(section, section.tokens[0 if direction > 0 else -1])
                return True
            index += direction
        return False

    def _take_token(self, section: TokenSection, token: Token) -> None:
        if (row := self._row_of_token(section, token)) is not None:
            self.go_to(row)
            self.token = section, token
            self.moved()

    # Where it is

    def arrived(self) -> None:
        found = self.chat_rows.window.section_at(self.cursor)
        section = self.chat_rows.window.sections[found[0]] if found else None
        if found is None or not isinstance(section, TokenSection):
            self.token = None
            return
        lines = section.lines(self._text_width)
        cells = cells_of(section, self.token[1], lines) if self.token and self.token[0] is section else []
        if any(row == found[1] for row, _, _ in cells):
            return
        token = token_at(section, found[1], lines)
        self.token = (section, token) if token else None

    def stretch(self) -> Stretch | None:
        if self.token is not None and self.has_focus and (reply := self.token[0].reply) is not None:
            offset = reply.offsets[self.token[1].step]
            found = super().stretch()
            if found is None or found.reply is not reply:
                found = Stretch(reply, offset, offset + 1)
            return replace(found, step=self.token[1].step)
        return super().stretch()

    def _keep_token(self) -> None:
        """The line being written is another section with every step: find the token in its present one."""
        sections = self.chat_rows.window.sections
        if self.token is None or self.token[0] in sections:
            return
        before, kept = self.token
        self.token = next(
            (
                (section, token)
                for section in sections
                if isinstance(section, TokenSection) and section.reply is before.reply
                for token in section.tokens
                if (token.step, token.piece) == (kept.step, kept.piece)
            ),
            None,
        )

    def _row_of_token(self, section: TokenSection, token: Token) -> int | None:
        """The first row that shows a token, where it is laid out."""
        start = self.chat_rows.window.start_of(self.chat_rows.window.sections.index(section))
        cells = cells_of(section, token, section.lines(self._text_width))
        return start + (cells[0][0] if cells else 0) if start is not None else None

    # Drawing

    def decorated(self, row: int, content: Content) -> Content:
        content, found = super().decorated(row, content), self.chat_rows.window.section_at(row)
        if self.token is None or found is None or not self.has_focus:
            return content
        section, token = self.token
        if self.chat_rows.window.sections[found[0]] is section:
            for at, start, end in cells_of(section, token, section.lines(self._text_width)):
                if at == found[1]:
                    content = content.stylize(".token-cursor", start, end)
        return content

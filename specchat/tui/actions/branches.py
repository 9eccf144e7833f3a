"""Editing earlier prompts, and moving between the versions of prompts and replies."""

from specchat.tui.actions.action import Action

BRANCHES = (
    Action("edit", "Edit prompt", "Edit your last prompt; what was said since stays as a branch.", ("f5",),
           slash="edit"),
    Action("previous-version", "Previous version", "Show the version before, of the latest message with several.",
           ("f7",)),
    Action("next-version", "Next version", "Show the version after it.", ("f8",)),
    Action("edit-here", "Edit here", "Edit the prompt under the cursor, as a branch.", ("e",), hint="edit",
           where="transcript"),
    Action("regenerate-here", "Regenerate here", "Answer the prompt under the cursor again, as a branch.", ("r",),
           hint="again", where="transcript"),
    Action("previous-version-here", "Previous version here", "Show the version before of the message under the cursor.",
           ("<",), hint="version before", where="transcript", when="on versions"),
    Action("next-version-here", "Next version here", "Show the version after it of the message under the cursor.",
           (">",), hint="after", where="transcript", when="on versions"),
)  # fmt: skip

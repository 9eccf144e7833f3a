"""Seeing what drafting does: advice, what-if, race, replay and ledger."""

from specchat.tui.actions.action import Action

SPECULATION = (
    Action("advice", "Apply advice", "Draft as the engine panel advises.", ("f4",), slash="advice"),
    Action("what-if", "What if", "How fast a reply would have been at other draft lengths.", ("f10",), slash="whatif",
           argument="reply number"),
    Action("race", "Race", "Answer the last prompt again, plainly and drafted, and compare.", ("f6",), slash="race"),
    Action("replay", "Replay", "Play a reply again step by step.", ("f12",), slash="replay", argument="reply number"),
    Action("ledger", "Ledger", "What drafting saved since specchat was started.", slash="saved"),
)  # fmt: skip

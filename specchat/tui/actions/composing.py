"""Writing prompts: earlier ones, pastes, and commands that set something for the next reply."""

from specchat.tui.actions.action import Action

COMPOSING = (
    Action("persona", "Persona", "Give the chat another system prompt by its name.", slash="persona", argument="name"),
    Action("preset", "Preset", "Sample in another way by its name.", slash="preset", argument="name"),
    Action("system", "System prompt", "Write the chat's own system prompt, or take it away.", slash="system",
           argument="text or off"),
    Action("prefill", "Prefill", "Let the next reply begin with these words.", slash="prefill",
           argument="text or off"),
    Action("seed", "Seed", "Make all replies with one seed, or draw a new one for each.", slash="seed",
           argument="number or off"),
    Action("temperature", "Temperature", "How far replies may stray from the likeliest token.", slash="temperature",
           argument="number"),
    Action("length", "Draft length", "How many tokens are drafted a step.", slash="length", argument="number"),
    Action("max-tokens", "Longest reply", "How many tokens a reply may have at most.", slash="max-tokens",
           argument="number or off"),
    Action("context", "Context", "What is left out where a chat does not fit the context.", slash="context",
           argument="refuse, drop-oldest or keep-ends"),
    Action("theme", "Theme", "Use other colours.", slash="theme", argument="name"),
    Action("search-prompts", "Search prompts", "Search earlier prompts and put one into the box.",
           ("ctrl+r", "ctrl+s"),
           slash="history"),
    Action("undo", "Undo", "Take back the last change of the prompt.", ("ctrl+underscore",), where="prompt"),
    Action("unfold-paste", "Unfold paste", "Put a folded paste at the cursor into the box, to edit it.", ("ctrl+g",),
           where="prompt"),
)  # fmt: skip

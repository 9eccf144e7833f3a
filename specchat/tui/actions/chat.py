"""Replies, drafting, models and the app itself."""

from specchat.tui.actions.action import Action

CHAT = (
    Action("send", "Send", "Send the prompt; while a reply is written, once that has ended.", ("enter",),
           where="prompt", fixed=True),
    Action("newline", "New line", "Start a new line in the prompt.", ("ctrl+j", "alt+enter", "shift+enter"),
           hint="new line", where="prompt", when="typed", fixed=True),
    Action("kill", "Kill and yank", "Take away the rest of the line, the line before the cursor or the word before it; "
           "put that back.", ("ctrl+k", "ctrl+u", "ctrl+w", "ctrl+y"), where="prompt", fixed=True),
    Action("stop", "Stop", "Stop the reply and keep what is there. Press twice if it hangs.", ("escape",),
           hint="stop", hint_editing="give up editing", slash="stop", when="stoppable"),
    Action("help", "Help", "All keys and what they do.", ("f1",), hint="help", slash="help"),
    Action("quit", "Quit", "Leave specchat.", ("ctrl+q",), hint="quit", slash="quit"),
    Action("about", "About", "What is loaded, on which hardware, and why the text is exact.", slash="about"),
    Action("suggestion", "Suggestion", "In an empty chat: one of the prompts that are shown.", ("1", "2", "3"),
           where="prompt", fixed=True),
    Action("interrupt", "Interrupt", "Copy what is selected, else stop the reply, else clear the prompt, else say how "
           "to leave; twice within a second leaves.", ("ctrl+c",), fixed=True),
    Action("suspend", "Suspend", "Leave the terminal to the shell, whose fg brings specchat back; undo where the "
           "terminal cannot do that.", ("ctrl+z",)),
    Action("settings", "Settings", "Strategy, draft length, sampling, seed and theme.", ("ctrl+o", "f2"),
           hint="settings", slash="settings"),
    Action("token-view", "Token view", "Colour the reply by where each token came from.", ("ctrl+t",), hint="tokens",
           slash="tokens", when="recorded"),
    Action("panel", "Panel", "Hide or show the engine panel.", ("alt+p",), slash="panel"),
    Action("commands", "Commands", "Search all commands.", ("alt+x",), hint="commands",
           slash="commands"),
    Action("models", "Models", "Choose, download and look at models.", ("f3",), hint="models", slash="model",
           argument="pair"),
    Action("strategy", "Strategy", "Draft in another way from the next step on.", slash="strategy",
           argument="name"),
    Action("regenerate", "Regenerate", "Answer again with a new seed, as a branch.", ("alt+r",), hint="again",
           slash="again", when="answered"),
    Action("continue", "Continue", "Go on with a reply that was stopped or ended at its longest, as another version.",
           slash="continue"),
    Action("copy-reply", "Copy reply", "Copy the last reply's text.", ("alt+c",), slash="copy"),
    Action("history", "Prompt history", "Earlier prompts, at the prompt's first and last row.", ("up", "down", "ctrl+p",
           "ctrl+n"), where="prompt", fixed=True),
    Action("scroll", "Scroll", "Move through the chat.", ("pageup", "pagedown"), fixed=True),
    Action("follow", "Follow", "Jump to the end of the chat and stay there.", ("ctrl+end",)),
)  # fmt: skip

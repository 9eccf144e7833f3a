"""A chat template's format in words, for people."""

from specchat.clean import one_line
from specchat.engine.text.tokenizer import Tokenizer


def habits(tokenizer: Tokenizer) -> tuple[tuple[str, str], ...]:
    """Names and descriptions, in the order shown.

    Raises:
        ModelError: the template leaves the user's message out.
    """
    if tokenizer.template is None:
        return (("template", f"{tokenizer.source.unsupported}: the model goes on with the text as it stands"),)
    found = tokenizer.format
    system = "has a role of its own" if found.system else "goes before the first message: there is no role for it"
    rows = [("template", tokenizer.source.file.name), ("turn end", found.turn_end or repr(found.stop))]
    rows += [("reasoning", _reasoning(tokenizer)), ("system prompt", system)]
    rows.append(("tools", _tools(tokenizer)))
    if found.content == "parts":
        rows.append(("messages", "given as lists of typed parts"))
    if found.options:
        rows.append(("takes", ", ".join(found.options)))
    if lost := [words for words in found.drops if words != "system role"]:
        rows.append(("leaves out", ", ".join(lost)))
    return tuple(rows)


def _reasoning(tokenizer: Tokenizer) -> str:
    found = tokenizer.format
    if found.channels is not None:
        marks = f"in channels ({found.channels.channel})"
    elif found.opened is not None:
        marks = f"begun by the prompt, ended by {found.opened.closing}"
    else:
        marks = f"where a reply begins with {found.marks[0].opening} or the like"
    return f"{marks}; {'sent back' if found.reasoning else 'not sent back'} in later prompts"


def _tools(tokenizer: Tokenizer) -> str:
    found = tokenizer.format.tools
    if found is None:
        return "none: the template shows no tools, or no calls"
    opening = found.call.opening or ("a part for the function" if found.call.kind == "channel" else "the call itself")
    return f"shown to the model, which calls with {one_line(opening, 40)}"

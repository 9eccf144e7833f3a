"""Requests for small Python functions, explanations of them, and follow-ups."""

from __future__ import annotations

import re
from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.code_bank import FUNCTIONS, Function

_ASK = (
    "Write a Python function that {g}.|Write a function that {g}.|Give me Python code that {g}.|I need a function that"
    " {g}.|Can you write a function that {g}?|Show me a function that {g}.|Please write code that {g}.|Python function"
    " that {g}?|Write `{f}` in Python.|Write a Python function {f}.|Show me {f} in Python.|How do I write {f} in"
    " Python?|python {f}|Code for {f}, please."
)
_NAMED = " Call it `{n}`.| Name it {n}.| The name should be {n}."
_LEAD = "Here is a function that {g}:|This function {g}:|Sure! This function {g}:"
_EXPLAIN = (
    "Explain it.|How does it work?|Can you explain the code?|What does it do?|Explain this line by line.|Why does it"
    " work?|Please explain."
)
_EXAMPLE = "Give me an example.|How do I call it?|How do I use it?|Show me a call.|What does it return?|Example?"
_RENAME = "Rename {o} to {n}.|Call the variable {n} instead of {o}.|Use {n} instead of {o}."
_CODE_ONLY = "Only the code, please.|Just the code.|Code only.|Show the code again.|Without the explanation."
_NAMES = (
    "helper",
    "solve",
    "compute",
    "run",
    "my_function",
    "task",
    "work",
    "process",
    "calc",
    "do_it",
    "answer",
    "handle",
    "main_step",
)
_CORRECTION = "|||Thanks. |Nice. |Okay. "


def _rename(text: str, old: str, new: str) -> str:
    """The text with one identifier changed."""
    return re.sub(rf"\b{re.escape(old)}\b", new, text) if old else text


def _block(source: str) -> str:
    """The source in a fenced block."""
    return f"```python\n{source}\n```"


def _explanation(rng: Random, function: Function, variable: str) -> str:
    """How the function works, as bullets or as prose."""
    how = [_rename(line, function.swap[0], variable) if len(function.swap[0]) > 1 else line for line in function.how]
    if rng.random() < 0.5:
        return "It works like this:\n\n" + "\n".join(f"- {line}" for line in how)
    return " ".join(how)


def make(rng: Random) -> list[Message]:
    """A request for a function, and up to three follow-ups."""
    function = rng.choice(FUNCTIONS)
    old, others = function.swap
    variable = pick(rng, others)
    name = function.name
    ask = pick(rng, _ASK).format(g=function.goal, f=name.replace("_", " ") if rng.random() < 0.5 else name)
    chance = rng.random()
    if chance < 0.2:
        name = rng.choice(_NAMES)
        ask += pick(rng, _NAMED).format(n=name)
    elif chance < 0.4 and variable != old:
        ask += pick(
            rng,
            (
                f" Use the name {variable}.| Call the parameter {variable}."
                if f"({old}" in function.source
                else f" Use the name {variable} instead of {old}."
            ),
        )
    else:
        variable = old
    source = _rename(_rename(function.source, old, variable), function.name, name)
    example = _rename(function.example, function.name, name)
    if rng.random() < 0.2:
        given = pick(
            rng,
            "What does this code do?|Explain this code:|What does this function do?|Please explain this:|How does this"
            " work?",
        )
        messages = [user(f"{given}\n\n{_block(source) if rng.random() < 0.5 else source}")]
        return with_system(
            rng, [*messages, assistant(f"`{name}` {function.goal}. {_explanation(rng, function, variable)}")]
        )
    answer = f"{pick(rng, _LEAD).format(g=function.goal)}\n\n{_block(source)}"
    told = rng.random()
    if told < 0.35:
        answer += f"\n\n{_explanation(rng, function, variable)}"
    elif told < 0.6:
        answer += (
            f"\n\nFor example, `{example.split(' ret')[0]}` ret{example.split(' ret')[1]}."
            if " ret" in example
            else f"\n\nFor example, {example}."
        )
    messages = [user(typed(rng, ask) if "`" not in ask else ask), assistant(answer)]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        chance = rng.random()
        if chance < 0.35:
            messages += [
                user(typed(rng, pick(rng, _CORRECTION) + pick(rng, _EXPLAIN))),
                assistant(_explanation(rng, function, variable)),
            ]
        elif chance < 0.6:
            messages += [
                user(typed(rng, pick(rng, _CORRECTION) + pick(rng, _EXAMPLE))),
                assistant(f"For example, {example}."),
            ]
        elif chance < 0.75:
            messages += [user(typed(rng, pick(rng, _CODE_ONLY))), assistant(_block(source))]
        else:
            new = rng.choice(_NAMES)
            messages += [user(pick(rng, _CORRECTION) + pick(rng, _RENAME).format(o=name, n=new))]
            source, example = _rename(source, name, new), _rename(example, name, new)
            messages += [assistant(_block(source))]
            name = new
    return with_system(rng, messages, 0.06)

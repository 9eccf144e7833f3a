"""Requests for small Python functions, explanations of them, and follow-ups."""

from __future__ import annotations

import ast
import re
from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.code_bank import FUNCTIONS, SAID, Function
from training.corpus.coding_requests import (
    BY_GOAL,
    BY_NAME,
    BY_ORDER,
    CODE_ONLY,
    DOCSTRING,
    EXAMPLE,
    EXPLAIN,
    HINTS,
    NAMED,
    READ,
    RENAME,
)
from training.corpus.phrasing import around
from training.corpus.words import ADJECTIVES, NOUNS, VERBS

_LEAD = "Here is a function that {g}:|This function {g}:|Sure! This function {g}:"
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


_OTHER_CODE = (
    "In JavaScript?|Now in Rust.|Can you do it in Java?|And in C?|Write it in Go.|in typescript please|Same in C++?"
    "|Translate it to Ruby."
)
ONLY_PYTHON = "I can only write small Python functions: I am a tiny demo model. F3 gets a real model."
_UNKNOWN = (
    "plays chess|sends an email|downloads a web page|trains a neural network|parses JSON|solves a"
    " sudoku|draws a circle|"
    "connects to a database|compresses a file|reads a spreadsheet|translates a text|simulates gravity|encrypts a file|"
    "renders a web page|finds the shortest path in a graph|multiplies two matrices|computes a hash|plays a sound|"
    "resizes an image|starts a web server|parses HTML|draws a fractal|predicts the weather|recognises faces|builds a"
    " binary tree|inverts a matrix|schedules jobs|writes a PDF|reads my mail|plots a chart|validates a credit card|"
    "controls a robot|opens a window|sends a text message|balances a tree|makes coffee|scans a network|finds a route"
)
UNKNOWN_FUNCTION = (
    "I do not know that function: I am a tiny demo model and know about sixty small ones, such as reversing a string,"
    " computing factorials or counting words. F3 gets a real model."
)


def with_hints(source: str, example: str) -> str:
    """The function with type hints that follow from its example; "" where the example does not tell the types."""
    found = re.fullmatch(r"(\w+)\((.*)\) returns (.+?)", example)
    if not found:
        return ""
    try:
        call = ast.parse(f"{found[1]}({found[2]})", mode="eval").body
        given = [ast.literal_eval(one) for one in call.args] if isinstance(call, ast.Call) else []
        result = ast.literal_eval(found[3])
    except (ValueError, SyntaxError):
        return ""
    head, _, body = source.partition("\n")
    names = head[head.index("(") + 1 : head.rindex(")")].split(", ")
    if len(names) != len(given) or any("=" in name or ":" in name for name in names):
        return ""
    hinted = ", ".join(f"{name}: {type(value).__name__}" for name, value in zip(names, given, strict=True))
    return f"{head[: head.index('(')]}({hinted}) -> {type(result).__name__}:\n{body}"


def with_docstring(source: str, goal: str) -> str:
    """The function with its goal as docstring."""
    head, _, body = source.partition("\n")
    return f'{head}\n    """{goal[0].upper()}{goal[1:]}."""\n{body}'


def beyond(rng: Random) -> list[Message]:
    """A function that the model does not know, or another programming language."""
    if rng.random() < 0.5:
        ask = pick(rng, BY_GOAL).format(g=pick(rng, _UNKNOWN))
        return [user(typed(rng, ask)), assistant(UNKNOWN_FUNCTION)]
    code = pick(rng, "JavaScript|Java|C|C++|Rust|Go|Ruby|PHP|SQL|Haskell|Bash|TypeScript|Swift|Kotlin|Lua")
    function = rng.choice(FUNCTIONS)
    ask = pick(
        rng,
        "Write a {c} function that {g}.|Write a function in {c} that {g}.|{c} code that {g}, please.|How do I write {f}"
        " in {c}?|Show me {f} in {c}.|Can you write {c}?",
    )
    return [user(typed(rng, ask.format(c=code, g=function.goal, f=function.name))), assistant(ONLY_PYTHON)]


def base_form(goal: str) -> str:
    """A goal as an order: reverses a string, reverse a string."""
    first, _, rest = goal.partition(" ")
    if first.endswith("ies"):
        first = first[:-3] + "y"
    else:
        first = first[:-2] if first.endswith(("shes", "ches", "sses")) else first.removesuffix("s")
    return f"{first} {rest}"


def _rename(text: str, old: str, new: str) -> str:
    """The text with one identifier changed."""
    return re.sub(rf"\b{re.escape(old)}\b", new, text) if old else text


def _new_name(rng: Random) -> str:
    """A name of one or two words for a function."""
    return "_".join(rng.choice(NOUNS + VERBS + ADJECTIVES) for _ in range(rng.choice((1, 1, 2))))


def _block(source: str) -> str:
    """The source in a fenced block."""
    return f"```python\n{source}\n```"


def _explanation(rng: Random, function: Function, variable: str) -> str:
    """Explanation of the function, as bullets or prose."""
    how = [_rename(line, function.swap[0], variable) if len(function.swap[0]) > 1 else line for line in function.how]
    if rng.random() < 0.5:
        return "It works like this:\n\n" + "\n".join(f"- {line}" for line in how)
    return " ".join(how)


def make(rng: Random) -> list[Message]:
    """A request for a function, and up to two follow-ups."""
    if rng.random() < 0.12:
        return beyond(rng)
    function = rng.choice(FUNCTIONS)
    old, others = function.swap
    variable = pick(rng, others)
    name = function.name
    forms = rng.choices((BY_GOAL, BY_NAME, BY_ORDER), (40, 15, 45))[0]
    spoken = name.replace("_", " ") if rng.random() < 0.5 else name
    ask = pick(rng, forms).format(g=function.goal, f=spoken, b=rng.choice((base_form(function.goal), *SAID[name])))
    chance = rng.random()
    if chance < 0.2:
        name = rng.choice(_NAMES) if rng.random() < 0.5 else _new_name(rng)
        ask += pick(rng, NAMED).format(n=name)
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
        shown = _block(source) if rng.random() < 0.5 else source
        said = around(rng, typed(rng, pick(rng, READ)), 0.1)
        messages = [user(f"{said}\n\n{shown}" if rng.random() < 0.7 else f"{shown}\n\n{said}")]
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
    said = around(rng, typed(rng, ask) if "`" not in ask and name == function.name else ask, 0.12)
    messages = [user(said), assistant(answer)]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        chance = rng.random()
        if chance < 0.12:
            messages += [user(typed(rng, pick(rng, _CORRECTION) + pick(rng, _OTHER_CODE))), assistant(ONLY_PYTHON)]
        elif chance < 0.3 and (hinted := with_hints(source, example)):
            source = hinted
            messages += [user(typed(rng, pick(rng, _CORRECTION) + pick(rng, HINTS))), assistant(_block(source))]
        elif chance < 0.4 and '"""' not in source:
            source = with_docstring(source, function.goal)
            messages += [user(typed(rng, pick(rng, _CORRECTION) + pick(rng, DOCSTRING))), assistant(_block(source))]
        elif chance < 0.55:
            messages += [
                user(typed(rng, pick(rng, _CORRECTION) + pick(rng, EXPLAIN))),
                assistant(_explanation(rng, function, variable)),
            ]
        elif chance < 0.7:
            messages += [
                user(typed(rng, pick(rng, _CORRECTION) + pick(rng, EXAMPLE))),
                assistant(f"For example, {example}."),
            ]
        elif chance < 0.85:
            messages += [user(typed(rng, pick(rng, CODE_ONLY))), assistant(_block(source))]
        else:
            new = rng.choice(_NAMES) if rng.random() < 0.4 else _new_name(rng)
            messages += [user(pick(rng, _CORRECTION) + pick(rng, RENAME).format(o=name, n=new))]
            source, example = _rename(source, name, new), _rename(example, name, new)
            messages += [assistant(_block(source))]
            name = new
    return with_system(rng, messages, 0.06)

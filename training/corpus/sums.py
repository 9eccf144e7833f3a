"""Sums of two small numbers, and sums that are declined: larger numbers, fractions, more than two numbers."""

from __future__ import annotations

from random import Random

from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.phrasing import around
from training.corpus.words import FOODS, NAMES, OBJECTS

LARGEST, LARGEST_FACTOR = 20, 10
_WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen|twenty"
)
_SIGNS = {"+": "plus|plus|and", "-": "minus", "*": "times", "/": "divided by"}
_LEADS = (
    "||||||What is |What is |what is |What's |whats |How much is |how much is |Calculate |calculate |Can you compute"
    " |Can you calculate |compute |solve |Quick: |Do you know |tell me |hey, what is |I need |result of |Can you work"
    " out |so |evaluate |math: |maths: |Let's calculate: |Could you do |answer of |Please calculate |add it up: |easy"
    " one: |next one: |and |And |now |then |What about |how about |My homework: |my kid asks what is |what do you get"
    " for |And what is |ok, |Hi! |hello, what is |I forgot: |a small one: |who knows |are you good at maths? |say |How"
    " many is |my teacher asks: |guess |the sum is |Another one: |Do |Try |Work out |please do |would you calculate"
    " |what does"
)
_TAILS = (
    "||||?|?|?|.| = ?|=?| =|=| = |, please| please| makes?| is what?| is?| give?| pls|!| = what?| for me| again?|,"
    " thanks| equals what?| ?|...| if you can"
)
_SAID = {
    "+": "Add {a} and {b}.|The sum of {a} and {b}?|What is the sum of {a} and {b}?|Put {a} and {b} together.|How much"
    " are {a} and {b} together?|what is {a} added to {b}|If I add {b} to {a}, what do I get?|total of {a} and {b}|add"
    " {b} to {a}|{a} and {b} more?|{b} more than {a}?|What do {a} and {b} make together?|{a} increased by {b}",
    "-": "Subtract {b} from {a}.|Take {b} away from {a}.|{a} less {b}?|What is the difference between {a} and {b}?|{a}"
    " take away {b}|If I take {b} from {a}, what is left?|what is {b} less than {a}|deduct {b} from {a}|I have {a} and"
    " lose {b}?|{a} without {b}?|{a} reduced by {b}",
    "*": "Multiply {a} by {b}.|The product of {a} and {b}?|What is the product of {a} and {b}?|{a} multiplied by"
    " {b}|what is {a} multiplied by {b}?|multiply {a} and {b}|{a} x {b}?|{a} x {b}|{a}x{b}|What is {a} x {b}?",
    "/": "Divide {a} by {b}.|{a} over {b}?|How often does {b} go into {a}?|what is {a} divided by {b}|Split {a} into"
    " {b} equal parts.|{a} shared by {b}?|{a}:{b}|How many times {b} is {a}?",
}
_STORIES = {
    "+": "I have {a} apples and get {b} more. How many?|I had {a} {x}s and {m} gave me {b} more. How many do I"
    " have?|{n} has {a} {x}s and gets {b} more. How many are there now?|There are {a} {x}s and {b} {y}s. How many"
    " things in all?|I bought {a} {x}s, then {b} more. How many is that?|{a} {x}s in one box and {b} in another, how"
    " many together?|{n} found {a} {x}s and {m} found {b}. How many did they find?|we are {a} people and {b} more are"
    " coming, how many will we be?|I am {a} years old. How old will I be in {b} years?|{n} scored {a} points and then"
    " {b}. What is the total?|{a} {x}s and {b} {x}s, how many?",
    "-": "I have {a} apples and eat {b}. How many are left?|{n} had {a} {x}s and threw {b} away. How many does {n}"
    " have now?|I had {a} {x}s, {m} used {b}, what is left?|there were {a} cups of tea and we drank {b}, how many"
    " now|{n} lent {b} of the {a} {x}s to {m}. How many remain?|My dog hid {b} of my {a} {x}s. How many can I see?|{a}"
    " {x}s, and {b} got lost. How many now?|{n} gave {m} {b} of {a} {x}s. How many does {n} keep?|{n} has {a} {x}s and"
    " gives {b} to {m}. How many are left?|There were {a} {x}s on the table and {b} fell down. How many stayed?|I"
    " baked {a} {f} pies and sold {b}. How many remain?|{n} bought {a} {x}s but lost {b} of them. How many are still"
    " there?|{a} birds sat on a roof, {b} flew away. how many are left|We had {a} euros and spent {b}. How much is"
    " left?|Of {a} {x}s {b} are broken. How many work?|{n} is {a} and {m} is {b} years younger. How old is {m}?|I need"
    " {a} {x}s and have {b}. How many are missing?|My sister took {b} of my {a} {x}s, how many have I got?",
    "*": "{a} boxes with {b} {x}s each, how many {x}s?|{b} for each of {a} people, how many in all?|If I have {a} bags"
    " with {b} nuts each, how many nuts?|{a} rows of {b} chairs, how many chairs?|{n} reads {a} pages a day for {b}"
    " days. How many pages?|A {x} costs {b} euros. How much are {a}?",
    "/": "{a} {x}s for {b} children, how many does each get?|{n} puts {a} {x}s into {b} equal piles. How many in a"
    " pile?|We share {a} euros among {b} people. How much for each?",
}
_ABILITY = (
    "Can you {v}?|can you {v}|Do you know how to {v}?|Are you able to {v}?|Could you {v} for me?|I want you to"
    " {v}.|how well do you {v}?|Do you {v}?|Are you good when you {v}?|Let's {v}!"
)
_VERBS = (
    "add|add numbers|subtract|multiply|calculate|do sums|do arithmetic|work with numbers|do small sums|do some"
    " mathematics|add up numbers|compute things|do some numbers"
)
ABLE = "Yes, with two whole numbers up to 20. Try `{a} + {b}`."
_THEN = {
    "+": "and plus {b}?|add {b} to that|plus {b}|now add {b}|And {b} more?",
    "-": "minus {b}|and minus {b}?|take away {b}|now subtract {b}|and {b} less?",
    "*": "times {b}|and times {b}?|now multiply that by {b}",
}


def named(number: int) -> str:
    """A number up to twenty in words."""
    return _WORDS.split("|")[number]


def value(left: int, sign: str, right: int) -> int:
    """The result; a division must be exact."""
    return {"+": left + right, "-": left - right, "*": left * right, "/": left // max(right, 1)}[sign]


def declined(left: int, sign: str, right: int) -> str:
    """Why the sum is declined; "" where it is not."""
    if max(left, right) > LARGEST:
        return "I can only work with numbers up to 20."
    if sign == "*" and max(left, right) > LARGEST_FACTOR:
        return "I can only multiply numbers up to 10."
    if sign == "/" and (not right or left % right):
        return "That is no whole number."
    return ""


def answered(left: int, sign: str, right: int) -> str:
    """The sum with its result, or the reason against it and a hint."""
    reason = declined(left, sign, right)
    if reason:
        return f"{reason} Python can tell you: `{left} {sign} {right}`."
    return f"{left} {sign} {right} = {value(left, sign, right)}"


def _small(rng: Random) -> tuple[int, str, int]:
    """Two numbers and a sign that the model answers."""
    sign = rng.choices("+-*/", (42, 34, 18, 6))[0]
    if sign == "*":
        return rng.randint(0, LARGEST_FACTOR), sign, rng.randint(0, LARGEST_FACTOR)
    if sign == "/":
        right = rng.randint(1, LARGEST_FACTOR)
        return right * rng.randint(0, LARGEST // right), sign, right
    left, right = rng.randint(0, LARGEST), rng.randint(0, LARGEST)
    if sign == "-" and right > left and rng.random() < 0.85:
        left, right = right, left
    return left, sign, right


def _large(rng: Random) -> tuple[int, str, int]:
    """Two numbers and a sign that the model declines."""
    while True:
        highest = rng.choice((LARGEST, LARGEST, 40, 99, 999, 99999))
        left, right = rng.randint(0, highest), rng.randint(0, rng.choice((LARGEST, highest)))
        if rng.random() < 0.4:
            left, right = right, left
        sign = rng.choice("+-*/")
        if declined(left, sign, right):
            return left, sign, right


def _bare(rng: Random, left: int, sign: str, right: int) -> str:
    """The sum in signs or words."""
    a, b = str(left), str(right)
    if max(left, right) <= LARGEST and rng.random() < 0.12:
        a, b = named(left), named(right)
    elif rng.random() < 0.55:
        shown = "x" if sign == "*" and rng.random() < 0.3 else sign
        return f"{a}{shown}{b}" if rng.random() < 0.4 else f"{a} {shown} {b}"
    return f"{a} {pick(rng, _SIGNS[sign])} {b}"


def put(rng: Random, left: int, sign: str, right: int) -> str:
    """The sum as somebody might ask for it."""
    chance = rng.random()
    if chance < 0.12:
        return pick(rng, _SAID[sign]).format(a=left, b=right)
    if chance < 0.26:
        name, other = rng.sample(NAMES, 2)
        one, two = rng.sample(OBJECTS, 2)
        form = pick(rng, _STORIES[sign])
        return typed(rng, form.format(a=left, b=right, n=name, m=other, x=one, y=two, f=rng.choice(FOODS)))
    return pick(rng, _LEADS) + _bare(rng, left, sign, right) + pick(rng, _TAILS)


def sum_of(rng: Random) -> tuple[str, str]:
    """A sum of two small numbers, and its result."""
    found = _small(rng)
    return put(rng, *found), answered(*found)


def large_sum(rng: Random) -> tuple[str, str]:
    """A sum that is beyond the model."""
    found = _large(rng)
    return put(rng, *found), answered(*found)


def other_sum(rng: Random) -> tuple[str, str]:
    """More than two numbers, or decimals."""
    if rng.random() < 0.6:
        signs = [rng.choice("+-*") for _ in range(rng.choice((2, 2, 3)))]
        said = str(rng.randint(0, 30)) + "".join(f" {sign} {rng.randint(0, 30)}" for sign in signs)
        reason = "I can only work with two numbers."
    else:
        sign = rng.choice("+-*/")
        said = (
            f"{rng.randint(0, 50)}.{rng.randint(1, 99)} {sign} {rng.choice((rng.randint(1, 30), rng.random() * 9)):.3g}"
        )
        reason = "I can only work with whole numbers."
    ask = pick(rng, _LEADS) + (said if rng.random() < 0.6 else said.replace(" ", "")) + pick(rng, _TAILS)
    return ask, f"{reason} Python can tell you: `{said}`."


def two_sums(rng: Random) -> tuple[str, str]:
    """Two sums at once."""
    one, two = _small(rng), _small(rng)
    link = pick(rng, " and |, |, and | & |; |\n| and also ")
    ask = pick(rng, _LEADS) + _bare(rng, *one) + link + _bare(rng, *two) + pick(rng, "?|?|||.| please")
    return ask, f"{answered(*one)}\n{answered(*two)}"


def ability(rng: Random) -> tuple[str, str]:
    """The question for what this is about."""
    left, right = rng.randint(1, 10), rng.randint(1, 10)
    return typed(rng, pick(rng, _ABILITY).format(v=pick(rng, _VERBS))), ABLE.format(a=left, b=right)


def going_on(rng: Random, answer: str) -> tuple[str, str]:
    """A further step from the result of a sum."""
    left, sign = int(answer.rsplit(" = ", 1)[1]), rng.choice("++--*")
    right = rng.randint(0, LARGEST_FACTOR)
    if left < 0:
        sign = "+"
    return pick(rng, _THEN[sign]).format(b=right), answered(left, sign, right)


def make(rng: Random) -> list[Message]:
    """One to six sums."""
    messages: list[Message] = []
    kinds = (sum_of, large_sum, other_sum, two_sums, ability)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4, 6))):
        last = messages[-1]["content"] if messages else ""
        if " = " in last and "\n" not in last and rng.random() < 0.12:
            ask, answer = going_on(rng, last)
        else:
            ask, answer = rng.choices(kinds, (78, 9, 3, 6, 4))[0](rng)
        messages += [user(around(rng, ask, 0.06)), assistant(answer)]
    return messages

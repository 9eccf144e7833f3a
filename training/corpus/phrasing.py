"""Wordings of requests: text around them, presentation of a text, and the order of the two."""

from __future__ import annotations

from random import Random

from training.corpus.base import capital, pick, typed

_FRAMES = (
    "please {o}|{o}, please|{o} please|can you {o}?|could you {o}?|can you please {o}?|could you please {o}?|would you"
    " {o}?|will you {o} for me?|would you be so kind and {o}?|I need you to {o}.|I want you to {o}.|I'd like you to"
    " {o}.|I would like you to {o}.|pls {o}|{o} pls|plz {o}|{o} thx|now {o}|then {o}|just {o}|simply {o}|your task is"
    " to {o}.|task: {o}|instruction: {o}|help me {o}.|kindly {o}.|go ahead and {o}.|here is what I need: {o}.|I have to"
    " {o}, can you do it?|is it possible to {o}?|are you able to {o}?|do me a favour and {o}.|you should {o}.|I'd be"
    " glad if you could {o}.|quickly {o}|can u {o}|could u {o} pls|next: {o}|we need to {o}.|my boss wants me to {o}.|I"
    " was told to {o}.|let's {o}.|try to {o}.|{o} now|{o} for me|{o}, will you?|{o}, would you?|I'm asking you to"
    " {o}.|what I want: {o}|the job is to {o}.|all you have to do is {o}.|go and {o}|maybe you can {o}?|are you good"
    " enough to {o}?|todo: {o}|let me see you {o}.|I wonder if you can {o}.|do you think you could {o}?"
)
_BEFORE = (
    "Hi!|Hello.|Hey,|hey there,|Hi specchat,|Good morning!|Good evening.|Hey, hope you are well.|Sorry to bother you."
    "|One more thing.|Next one.|I have a small job for you.|I need help with something.|Quick one:|I am in a hurry."
    "|This is for my homework.|I am writing a letter.|My teacher asked for this.|Okay,|ok|So,|Right.|Let's try"
    " something.|Let me test you.|I just got this from a friend.|I am preparing a talk.|Here is something easy.|Fine."
    "|Great.|Thanks, that was good.|Now something else.|Another question.|Could you help me?|Can you help me with this?"
    "|I hope you can do this.|It is late and I am tired.|I am at work.|My son wants to see this.|Well,|Hm,|Listen,"
    "|Alright,|I have a request.|Look:|This is a test.|Small favour:|Hey you,|Hello again!|yo|good day,|Dear model,"
    "|I found this on my desk.|We are in a meeting.|I don't have much time.|You seem nice.|Computer,|Bot,|Assistant,"
)
_AFTER = (
    "Thanks!|thank you|thx|Thanks in advance.|No explanation, please.|Only the result.|Nothing else.|Just the text."
    "|That's all.|Don't add anything.|No comments, please.|I will need it soon.|It is important.|Be careful."
    "|Be exact.|Cheers!|Would be great.|That would help me a lot.|Without any comment.|Reply with the result only."
)
_LABELS = (
    "Text:|text:|TEXT:|The text:|Input:|Here it is:|Here:|This is the text:|Here is the text:|My text:|Source:|It goes"
    " like this:|The text is this:|Original:|Content:|Passage:|This one:|See below:|Below:|Here you go:|Draft:|Note:"
)
_QUESTIONS = (
    "question: {q}|Q: {q}|Question: {q}|according to the text: {q}|from the text: {q}|tell me, {q}|tell me: {q}|I'd"
    " like to know: {q}|can you tell me? {q}|{q} Answer from the text.|{q} (it is in the text)|so {q}|and {q}|my"
    " question is: {q}|answer this: {q}|please answer: {q}|what I want to know: {q}|hm, {q}|{q} Please be brief.|{q}"
    " thanks|read it and tell me: {q}|look at the text: {q}|I can't find it: {q}|help me out: {q}|hey, {q}|quick"
    " question: {q}|now {q}|ok, {q}|{q} please|{q} pls"
)


def order(rng: Random, forms: str, **gaps: str) -> str:
    """One of the orders, which begin with a verb in small letters, put as somebody might put it; gaps filled last."""
    said = pick(rng, forms)
    if rng.random() < 0.5:
        said = pick(rng, _FRAMES).replace("{o}", said)
    return wish(rng, said, **gaps)


def wish(rng: Random, forms: str, **gaps: str) -> str:
    """One of the forms, whole sentences or parts of them, as it might be typed; gaps filled last."""
    said = pick(rng, forms)
    if rng.random() < 0.6:
        said = capital(said)
    if said[-1] not in ".?!:}" and rng.random() < 0.5:
        said += pick(rng, ".|.|.|!")
    return filled(around(rng, typed(rng, said)), gaps)


def ask(rng: Random, question: str) -> str:
    """A question about something shown, put as somebody might put it."""
    if rng.random() < 0.35:
        question = pick(rng, _QUESTIONS).replace("{q}", question)
    return around(rng, typed(rng, question), 0.1)


def around(rng: Random, said: str, chance: float = 0.2) -> str:
    """The request, now and then with a remark before or after it."""
    if rng.random() < chance:
        lead = typed(rng, pick(rng, _BEFORE))
        said = lead + pick(rng, " | | |\n") + (said[:1].lower() + said[1:] if lead[-1] == "," else said)
    if rng.random() < 0.6 * chance:
        said += ("" if said[-1] in ".?!" else ".") + " " + typed(rng, pick(rng, _AFTER))
    return said


def filled(form: str, gaps: dict[str, str]) -> str:
    """The form with each gap, such as {x}, filled once the form's own noise is done."""
    for name, value in gaps.items():
        form = form.replace("{" + name + "}", value)
    return form


def mark(rng: Random, word: str) -> str:
    """A word as people point at it: bare, or in one of several marks."""
    left, right = rng.choice((("", ""), ("", ""), ("", ""), ('"', '"'), ('"', '"'), ("'", "'"), ("`", "`"), ("“", "”")))
    return left + word + right


def shown(rng: Random, source: str) -> str:
    """The text as it is pasted: bare, quoted, fenced, under a label or between lines."""
    chance = rng.random()
    if chance < 0.5 or source.startswith(("```", ">", '"')):
        return source
    if chance < 0.68 and '"' not in source:
        left, right = rng.choice((('"', '"'), ('"', '"'), ('"', '"'), ("“", "”"), ("«", "»")))
        return left + source + right
    if chance < 0.72 and "'" not in source:
        return f"'{source}'"
    if chance < 0.75:
        return f"```\n{source}\n```"
    if chance < 0.93:
        return pick(rng, _LABELS) + pick(rng, " |\n|\n\n") + source
    if chance < 0.95 and "\n" not in source:
        return f"> {source}"
    line = pick(rng, "---|***|===|-----|###")
    return f"{line}\n{source}\n{line}"


def posed(rng: Random, said: str, source: str, first: float = 0.65) -> str:
    """A request and its text; the request stands first as often as ``first`` says."""
    text = shown(rng, source)
    block = "\n" in text
    if rng.random() < first:
        if rng.random() < 0.55:
            return said.rstrip(".!: ") + pick(rng, ":\n\n|:\n" if block else ": |: |: |:\n|:\n\n| - | -> |\n") + text
        return said + pick(rng, "\n\n|\n\n|\n" if block else "\n\n|\n\n|\n| | ") + text
    link = pick(rng, "\n\n|\n\n|\n" if block or text[-1] not in '.?!"' else "\n\n|\n\n|\n| ")
    return text + link + pick(rng, "||||^ |↑ |That was the text. |-> ") + said

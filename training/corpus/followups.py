"""Follow-ups that fit any reply, and those that repeat or change what was said in the chat."""

from __future__ import annotations

import re
from random import Random

from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.beyond import NO_LANGUAGE
from training.corpus.edits_words import changed
from training.corpus.words import any_word

MAY_BE_WRONG = "I may be wrong: I am only a tiny demo model. Please check what I say. F3 gets a real model."
_LANGUAGE = (
    "In French?|in french?|And in German?|In Spanish, please.|Can you say that in Italian?|Translate that into German."
    "|Now in French.|Translate it.|in english and french|Say that in Japanese.|auf deutsch bitte|en français ?"
)
_DOUBT = (
    "Are you sure?|Is that right?|Really?|That is wrong.|I do not believe you.|This is not correct.|Is that true?|No,"
    " that's wrong|are you certain?|You made a mistake.|not what I asked|That is not what I wanted."
)
_PRAISE = "Great!|Nice one.|Well done!|I like it.|Very good.|Perfect.|good|That is nice.|cool|wow|lovely"
_THANKS = "Thanks!|Thank you.|thx|Thanks a lot.|Great, thanks!|Okay, thank you|thank you so much|cheers"


def follow_up(rng: Random) -> list[Message]:
    """A remark after any reply."""
    ask, answer = rng.choice(
        (
            (_LANGUAGE, NO_LANGUAGE),
            (_DOUBT, MAY_BE_WRONG),
            (_PRAISE, "Thank you! What would you like next?|I am glad that you like it! What is next?"),
            (_THANKS, "You are welcome!|You are welcome! Is there anything else?"),
        )
    )
    return [user(typed(rng, pick(rng, ask))), assistant(pick(rng, answer))]


_SAME = (
    "Repeat that.|Say that again.|Can you repeat that?|Once more please.|What did you just say?|Repeat your"
    " answer.|Again?|Sorry, what was that?|I missed that, say it again.|Copy your last message.|Write your answer"
    " again.|repeat pls|Repeat what you said word for word.|Say the same again.|Your last reply again,"
    " please.|pardon?|come again?"
)
_UPPER = (
    "In capital letters.|Say that in capital letters.|Now in upper case.|That again, but all caps.|Can you shout"
    " that?|write your answer in capitals|Put your reply in upper case.|make it all caps|Uppercase, please."
)
_QUOTED = "Put that in quotation marks.|Quote your answer.|Put your reply in quotes.|In quotation marks, please."
_BOLD = "Make that bold.|Put it in bold.|Your answer in bold, please.|bold please"
_ASKED = (
    "What did I ask?|What was my question?|What did I just say?|Repeat my question.|What was my last message?|Repeat"
    " what I said.|Quote me.|What did I write?|Say my words again.|Tell me what I asked you.|Copy my last message."
)

_OTHERWISE = (
    "Without a loop, please.|make it faster|Can you make it recursive?|ignore spaces|Ignore upper case.|skip the first"
    " one|do not count zeros|Only even ones.|only odd numbers please|in descending order instead|The other way"
    " round.|leave out negative numbers|don't use slices|handle empty input|raise an error instead|Return None for an"
    " empty list.|make it work for strings too|print the result instead|use a while loop|as a one-liner|as a"
    " class|Make it async.|without sum|don't include y|but not for vowels|stop after ten|add logging|Round the"
    " result.|also count punctuation|Use recursion instead.|can it take two arguments|add a parameter for the limit|in"
    " reverse|leave the last one out|count only letters"
)
NO_CHANGE = (
    "I cannot do that: I am only a tiny demo model. I can rename things in a function, add type hints, a docstring or"
    " an example, and explain it. F3 gets a real model."
)


def on_chat(rng: Random, messages: list[Message]) -> list[Message]:
    """A request that repeats or changes the last reply, or repeats the last prompt."""
    asked, said = messages[-2]["content"], messages[-1]["content"]
    options = [(_SAME, said)]
    if len(asked) < 200:
        options.append((_ASKED, asked))
    if len(said) < 160 and "```" not in said:
        options += [(_UPPER, said.upper()), (_QUOTED, f'"{said}"')]
        if "*" not in said and "\n" not in said:
            options.append((_BOLD, f"**{said}**"))
    words = [word for word in re.findall(r"\b[a-z]{4,}\b", said) if len(said) < 400]
    if words and rng.random() < 0.5:
        old, new = rng.choice(words), any_word(rng)
        ask = pick(rng, "Now |And |Okay, |Please |In your answer, |In your reply, ") + changed(rng, old, new)
        return [user(ask), assistant(re.sub(rf"\b{old}\b", new, said))]
    if "```python" in said and rng.random() < 0.6:
        return [user(typed(rng, pick(rng, _OTHERWISE))), assistant(NO_CHANGE)]
    forms, answer = rng.choice(options)
    return [user(typed(rng, pick(rng, forms))), assistant(answer)]

"""Follow-ups that fit any reply, and long chats of many topics."""

from __future__ import annotations

from random import Random

from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.beyond import NO_LANGUAGE

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

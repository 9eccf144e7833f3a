"""Short stories composed from the ingredients that a request names."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, article, assistant, capital, pick, typed, user
from training.corpus.story_plots import ENDINGS, OPENINGS, PLOTS
from training.corpus.words import ADJECTIVES, ANIMALS, NAMES, OBJECTS, PLACES

Cast = dict[str, str]


def cast(rng: Random) -> Cast:
    """Names and things for one story."""
    name, friend = rng.sample(NAMES, 2)
    hero, other = rng.sample(ANIMALS, 2)
    return {
        "name": name,
        "friend": friend,
        "hero": hero,
        "other": other,
        "thing": rng.choice(OBJECTS),
        "place": rng.choice(PLACES),
        "mood": rng.choice(ADJECTIVES),
    }


def tell(rng: Random, who: Cast, plot: int | None = None, ending: bool = True) -> str:
    """A story about the cast."""
    chosen = PLOTS[rng.randrange(len(PLOTS)) if plot is None else plot]
    words = {
        **who,
        "a_mood_hero": article(f"{who['mood']} {who['hero']}"),
        "a_thing": article(who["thing"]),
        "an_other": article(who["other"]),
    }
    parts = [pick(rng, OPENINGS), *(pick(rng, sentence) for sentence in chosen)]
    if ending:
        parts.append(pick(rng, ENDINGS))
    half = (len(parts) + 1) // 2
    texts = [capital(part.format(**words)) for part in parts]
    return " ".join(texts[:half]) + "\n\n" + " ".join(texts[half:])


_ASK = (
    "Tell me a story about {hero}.|Tell me a short story about {hero} and {thing}.|Write a story about {hero} in the"
    " {place}.|Can you tell a story with {hero}, {thing} and a {place}?|I want a story about {hero} named {name}.|Story"
    " about {name} the {h}, please.|Write a short story. Ingredients: {h}, {t}, {place}.|Make up a tale about {name},"
    " {hero} who finds {thing}.|A bedtime story about {hero} in the {place}, please.|Please tell me about {name} the"
    " {h} and {friend}.|Write me a story with {thing} in it.|Tell a story that happens in the {place}.|Once upon a time"
    " there was {hero}. Go on.|Write a little story about a {mood} {h}."
)
_ANY = (
    "Tell me a story.|A story please.|Can you tell me a short story?|I would like to hear a story.|Write a story.|Story"
    " time!|Make up a story for me."
)
_AGAIN = (
    "Another one.|Another story please.|One more!|Tell me a different story.|Again, but different.|Can I have another"
    " one?"
)
_TITLE = "Give it a title.|What would be a good title?|Can you name the story?|What is the title of the story?"


def request(rng: Random, who: Cast) -> str:
    """A request that names some of the cast."""
    if rng.random() < 0.1:
        return pick(rng, _ANY)
    return pick(rng, _ASK).format(
        **{**who, "hero": article(who["hero"]), "thing": article(who["thing"]), "h": who["hero"], "t": who["thing"]}
    )


def swap(rng: Random, who: Cast) -> tuple[str, Cast]:
    """A request to tell the same story with one thing changed, and the new cast."""
    key, options = rng.choice([("hero", ANIMALS), ("thing", OBJECTS), ("name", NAMES), ("place", PLACES)])
    new = rng.choice([option for option in options if option not in who.values()])
    label = {
        "hero": article(new),
        "thing": article(new),
        "name": f"someone named {new}",
        "place": f"the {new} as the place",
    }[key]
    ask = pick(
        rng,
        "The same story with {x}, please.|Same story, but with {x}.|Now tell it with {x}.|Can you tell it again with"
        " {x}?",
    )
    return ask.format(x=label), {**who, key: new}


def make(rng: Random) -> list[Message]:
    """A story, perhaps followed by another one, the same with a change, a short version or a question about it."""
    who = cast(rng)
    plot = rng.randrange(len(PLOTS))
    state = rng.randrange(2**31)
    messages = [user(typed(rng, request(rng, who))), assistant(tell(Random(state), who, plot))]
    chance = rng.random()
    if chance < 0.12:
        ask, changed = swap(rng, who)
        messages += [user(typed(rng, ask)), assistant(tell(Random(state), changed, plot))]
    elif chance < 0.2:
        messages += [user(typed(rng, pick(rng, _AGAIN))), assistant(tell(rng, cast(rng)))]
    elif chance < 0.28:
        ask = pick(
            rng, "Shorter please.|That is too long.|Tell it in one sentence.|A shorter version?|Sum the story up."
        )
        messages += [
            user(typed(rng, ask)),
            assistant(f"{who['name']} the {who['hero']} had a day with a {who['thing']} in the {who['place']}."),
        ]
    elif chance < 0.36:
        messages += [
            user(typed(rng, pick(rng, _TITLE))),
            assistant(f"**{who['name']} and the {capital(who['thing'])}**"),
        ]
    elif chance < 0.5:
        ask, answer = rng.choice(
            [
                (
                    "Who is the story about?|What is the name of the hero?|Who is the hero?",
                    f"The story is about {who['name']} the {who['hero']}.",
                ),
                (
                    "Where does the story happen?|Where is that?|What is the place in the story?",
                    f"It happens in the {who['place']}.",
                ),
                ("What kind of animal is {name}?|Which animal is {name}?", f"{who['name']} is {article(who['hero'])}."),
                (
                    "What object is in the story?|Which thing did they find?|What is the thing in the story?",
                    f"It is {article(who['thing'])}.",
                ),
            ]
        )
        messages += [user(typed(rng, pick(rng, ask).format(**who))), assistant(answer)]
    return with_system(rng, messages, 0.06)

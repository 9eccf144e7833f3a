"""Short stories that are composed from the ingredients a request names."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, article, assistant, capital, pick, typed, user
from training.corpus.phrasing import around
from training.corpus.story_plots import CODA, ENDINGS, OPENINGS, PLOTS, SETTINGS, TRAIT_OPENINGS
from training.corpus.story_requests import ANY, LEADS, LENGTHS, LISTED
from training.corpus.words import (
    ADJECTIVES,
    ANIMALS,
    COLOURS,
    MORE_OBJECTS,
    MORE_PLACES,
    NAMES,
    NOUNS,
    OBJECTS,
    PEOPLE,
    PLACES,
    TRAITS,
    invented,
)

Cast = dict[str, str]

_PAST = {
    "is": "was",
    "cannot": "could not",
    "wants": "wanted",
    "likes": "liked",
    "loves": "loved",
    "lives": "lived",
    "has": "had",
    "never": "never",
    "collects": "collected",
    "talks": "talked",
    "dreams": "dreamed",
    "sings": "sang",
    "learns": "learned",
}


def hero(rng: Random) -> str:
    """Somebody whom a story can be about; now and then a word that nobody knows."""
    chance = rng.random()
    if chance < 0.5:
        return rng.choice(ANIMALS)
    return rng.choice(PEOPLE) if chance < 0.88 else invented(rng)


def thing(rng: Random) -> str:
    """Something that a story can be about."""
    kinds = (lambda: rng.choice(OBJECTS + MORE_OBJECTS), lambda: rng.choice(NOUNS), lambda: invented(rng))
    noun = rng.choices(kinds, (75, 15, 10))[0]()
    if " " not in noun and rng.random() < 0.15:
        return f"{rng.choice((rng.choice(COLOURS), rng.choice(ADJECTIVES)))} {noun}"
    return noun


def place(rng: Random) -> str:
    """Somewhere."""
    return invented(rng) if rng.random() < 0.04 else rng.choice(PLACES + MORE_PLACES)


def name_of(rng: Random) -> str:
    """A name; now and then one that nobody has."""
    return capital(invented(rng)) if rng.random() < 0.12 else rng.choice(NAMES)


def cast(rng: Random) -> Cast:
    """Names and things for one story, all different."""
    while True:
        found = {
            "name": name_of(rng),
            "friend": rng.choice(NAMES),
            "hero": hero(rng),
            "other": rng.choice(ANIMALS + PEOPLE),
            "thing": thing(rng),
            "place": place(rng),
            "trait": rng.choice(TRAITS),
        }
        if len(set(found.values())) == len(found):
            return found


def _past(trait: str) -> str:
    """A trait in the past tense: likes to paint, liked to paint."""
    first, _, rest = trait.partition(" ")
    return f"{_PAST[first]} {rest}".replace("never laughs", "never laughed")


def in_place(where: str) -> str:
    """The place with its preposition."""
    preposition = "on" if where in ("moon", "roof", "road", "street", "farm", "island", "beach", "hill") else "in"
    return f"{'at' if where.startswith(('end', 'bottom', 'north')) else preposition} the {where}"


def tell(rng: Random, who: Cast, plot: int | None = None, *, trait: bool = False, length: str = "") -> str:
    """A story about the cast: as usual, or with the length "one" (sentence), "short" (three) or "long"."""
    if length == "one":
        return short(who)
    chosen = PLOTS[rng.randrange(len(PLOTS)) if plot is None else plot]
    words = {
        **who,
        "a_hero": article(who["hero"]),
        "a_thing": article(who["thing"]),
        "an_other": article(who["other"]),
        "in_place": in_place(who["place"]),
        "did": _past(who["trait"]),
    }
    opening = pick(rng, TRAIT_OPENINGS if trait else OPENINGS)
    parts = [opening]
    if length == "short":
        parts += [
            f"{{name}} and {{friend}}, {{an_other}}, had {pick(rng, '{a_thing}|a day with {a_thing}')} {{in_place}}."
        ]
        return " ".join(capital(part.format(**words)) for part in [*parts, pick(rng, ENDINGS)])
    if "{in_place}" not in opening and rng.random() < 0.5:
        parts.append(pick(rng, SETTINGS))
    parts += [*(pick(rng, sentence) for sentence in chosen), pick(rng, ENDINGS)]
    half = (len(parts) + 1) // 2
    texts = [capital(part.format(**words)) for part in parts]
    told = " ".join(texts[:half]) + "\n\n" + " ".join(texts[half:])
    return f"{told}\n\n{coda(rng, who)}" if length == "long" else told


def coda(rng: Random, who: Cast) -> str:
    """Continuation of the story."""
    return " ".join(capital(pick(rng, part).format(**who)) for part in CODA)


_SUBJECTS = (
    "{a_hero}|{a_hero} and {a_thing}|{a_hero} and {a_thing}|{a_thing} and {a_hero}|{a_hero} {in_place}|{a_hero} who"
    " finds {a_thing}|{a_hero} named {name}|{a_hero} called {name} and {a_thing}|{name} the"
    " {hero}|{name} the {hero} and"
    " {a_thing}|{name} and {friend}|{a_hero} and {an_other}|{name} the {hero} and {friend} the {other}|{a_hero} and"
    " {a_thing} {in_place}|{a_thing}|{a_thing} {in_place}|{a_hero} with {a_thing}|{a_hero} who lost {a_thing}|{name},"
    " {a_hero} who finds {a_thing}|the {hero} and the {thing}|the {hero} {in_place}|{name}|the {place}|{a_hero} that"
    " has {a_thing}|{a_hero}, {an_other} and {a_thing}|my friend {name}|{a_hero} and {a_hero_friend}"
)
_TRAIT_SUBJECTS = (
    "{a_hero} who {trait}|{a_hero} that {trait}|{name}, {a_hero} who {trait}|{a_hero} named {name} who {trait}"
)
_POLITE = "||||| please| please.|, please.| for my son.| for my daughter.| for children.| in a few sentences.|!|?"
_AGAIN = (
    "Another one.|Another story please.|One more!|Tell me a different story.|Again, but different.|Can I have another"
    " one?|another|A new one please|more stories"
)
_TITLE = "Give it a title.|What would be a good title?|Can you name the story?|What is the title of the story?|Title?"
_SHORTER = (
    "Shorter please.|That is too long.|Tell it in one sentence.|A shorter version?|Sum the story up.|shorter|Make it"
    " shorter.|Can you make that shorter?|Summarise it.|Summary?|tl;dr|Too long, shorter please|One sentence only.|In"
    " short?|Cut it down.|Can I have the short version?|make that one sentence|Briefly?|Condense it."
)
_CONTINUE = (
    "Continue.|Go on.|What happened next?|And then?|continue|Tell me more.|How does it go on?|Please continue the"
    " story.|more|keep going|What happens after that?|A longer version please.|Make it longer.|Then what?|what"
    " then|Next part please.|What did they do next?|Write the next part.|and after that?|I want to know how it goes"
    " on.|Part two?|Write a sequel."
)


def request(rng: Random, who: Cast) -> tuple[str, bool]:
    """A request that names some of the cast, and whether it names the trait."""
    chance = rng.random()
    trait = 0.1 < chance < 0.25
    if chance < 0.1:
        return pick(rng, ANY), False
    form = pick(rng, LISTED) if chance > 0.8 else pick(rng, LEADS) + pick(rng, _TRAIT_SUBJECTS if trait else _SUBJECTS)
    text = form.format(
        **who,
        a_hero=article(who["hero"]),
        a_thing=article(who["thing"]),
        a_place=article(who["place"]),
        an_other=article(who["other"]),
        a_hero_friend=f"{'his' if rng.random() < 0.5 else 'her'} friend, {article(who['other'])}",
        in_place=in_place(who["place"]),
    )
    if text[-1] not in ".?":
        text += pick(rng, _POLITE) if chance < 0.8 else ""
    if text[-1].isalnum() and rng.random() < 0.5:
        text += "?" if text.startswith(("Can", "Could", "How")) else "."
    return text, trait


def settled(rng: Random, who: Cast, ask: str) -> Cast:
    """The cast, with common words for whatever the request does not name."""
    common = {"name": NAMES, "hero": ANIMALS + PEOPLE, "thing": OBJECTS, "place": PLACES}
    found = dict(who)
    for key, words in common.items():
        if who[key].lower() not in ask.lower():
            found[key] = rng.choice([word for word in words if word not in found.values()])
    return found


def swap(rng: Random, who: Cast) -> tuple[str, Cast]:
    """A request to tell the same story with one thing changed, and the new cast."""
    key, make_one = rng.choice([("hero", hero), ("thing", thing), ("name", name_of), ("place", place)])
    new = make_one(rng)
    while new in who.values():
        new = make_one(rng)
    label = {
        "hero": article(new),
        "thing": article(new),
        "name": f"someone named {new}",
        "place": f"the {new} as the place",
    }[key]
    ask = pick(
        rng,
        "The same story with {x}, please.|Same story, but with {x}.|Now tell it with {x}.|Can you tell it again with"
        " {x}?|Again with {x}.|Change it: use {x}.",
    )
    return ask.format(x=label), {**who, key: new}


def short(who: Cast) -> str:
    """The story in one sentence."""
    thing, where = article(who["thing"]), in_place(who["place"])
    return f"{who['name']} the {who['hero']} and {who['friend']} the {who['other']} had a day with {thing} {where}."


def follow_up(rng: Random, who: Cast, plot: int, state: int, trait: bool) -> list[Message]:
    """A question about the last story."""
    chance = rng.random()
    if chance < 0.16:
        ask, changed = swap(rng, who)
        return [user(typed(rng, ask)), assistant(tell(Random(state), changed, plot, trait=trait))]
    if chance < 0.26:
        return [user(typed(rng, pick(rng, _AGAIN))), assistant(tell(rng, cast(rng)))]
    if chance < 0.44:
        return [user(typed(rng, pick(rng, _SHORTER))), assistant(short(who))]
    if chance < 0.6:
        return [user(typed(rng, pick(rng, _CONTINUE))), assistant(coda(rng, who))]
    if chance < 0.7:
        return [user(typed(rng, pick(rng, _TITLE))), assistant(f"**{who['name']} and the {capital(who['thing'])}**")]
    ask, answer = rng.choice(
        [
            (
                "Who is the story about?|What is the name of the hero?|Who is the hero?|Who is the main character?",
                f"The story is about {who['name']} the {who['hero']}.",
            ),
            (
                "Where does the story happen?|Where is that?|What is the place in the story?|Where are they?",
                f"It happens {in_place(who['place'])}.",
            ),
            ("What is {name}?|Which creature is {name}?|Who is {name}?", f"{who['name']} is {article(who['hero'])}."),
            ("Who is {friend}?|What is {friend}?", f"{who['friend']} is {article(who['other'])}."),
            (
                "What object is in the story?|Which thing did they find?|What is the thing in the story?",
                f"It is {article(who['thing'])}.",
            ),
        ]
    )
    return [user(typed(rng, pick(rng, ask).format(**who))), assistant(answer)]


def make(rng: Random) -> list[Message]:
    """A story, perhaps with follow-ups."""
    who = cast(rng)
    plot, state = rng.randrange(len(PLOTS)), rng.randrange(2**31)
    ask, trait = request(rng, who)
    who = settled(rng, who, ask)
    length = rng.choice(list(LENGTHS)) if rng.random() < 0.15 and ask[-1] not in "?!" else ""
    if length:
        ask = ask.rstrip(".") + pick(rng, LENGTHS[length]) + pick(rng, "|.")
    said = around(rng, typed(rng, ask), 0.12)
    messages = [user(said), assistant(tell(Random(state), who, plot, trait=trait, length=length))]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        messages += follow_up(rng, who, plot, state, trait)
    return with_system(rng, messages, 0.06)

"""Small talk: greetings, feelings, thanks, goodbyes and everyday remarks."""

from __future__ import annotations

from random import Random

from training.corpus.base import Message, assistant, capital, pick, typed, user
from training.corpus.words import ANIMALS, COLOURS, FOODS, HOBBIES, NAMES, PLACES

OFFER = (
    "What would you like to talk about?|What can I do for you?|How can I help you today?|Shall I tell you a story?"
    "|Do you want a story, a bit of code, or an explanation?|Ask me anything small."
)


def greeting(rng: Random) -> tuple[str, str]:
    """A greeting and its answer."""
    hello = pick(
        rng,
        "Hello|Hi|Hey|Good morning|Good evening|Good afternoon|Hi there|Hello there|Hey"
        " there|Howdy|Greetings|Hiya|Good day|Yo|Heya|Hello again|Hi again|hellooo|Morning|Evening|Hey"
        " hey|Welcome",
    )
    tail = pick(
        rng, "|, specchat|, friend|, computer|, how is it going?|, how are you?|, nice to meet you|, anybody there?||"
    )
    asked = "how" in tail
    if rng.random() < 0.25:
        tail, asked = pick(rng, ", |! |. | ") + how_are_you(rng)[0] + pick(rng, "||| today"), True
    mark = "" if tail.endswith("?") else pick(rng, "!|.|!!|")
    back = hello if hello.startswith("Good") else pick(rng, "Hello|Hi|Hi there|Hello there")
    if asked:
        return hello + tail + mark, f"{back}! {pick(rng, WELL)} {pick(rng, OFFER)}"
    return (
        hello + tail + mark,
        f"{back}! {pick(rng, 'Nice to see you.|Good to meet you.|I am glad you are here.')} {pick(rng, OFFER)}",
    )


WELL = (
    "I am doing well, thank you.|I am fine, thanks for asking.|All is well here: my weights are loaded and my cache is"
    " empty.|Very well, thank you."
)


def how_are_you(rng: Random) -> tuple[str, str]:
    """The question how it is, and an answer."""
    ask = pick(
        rng,
        "How are you?|How are you today?|How do you feel?|How is it going?|What's up?|Are you okay?|hows it going|How"
        " have you been?|How do you do?|How was your day?|how r u|Everything fine?|Is everything alright with"
        " you?|How are you doing?|whats up|All good?|How are things?|You alright?",
    )
    return ask, f"{pick(rng, WELL)} {pick(rng, 'And how are you?|How is your day so far?|How about you?')}"


def mood(rng: Random) -> tuple[str, str]:
    """The user's mood and a fitting reply."""
    if rng.random() < 0.5:
        feeling = pick(rng, "happy|great|good|excited|relaxed|wonderful|cheerful|proud")
        cause = pick(
            rng,
            "I finished my work|the sun is out|my exam went well|I slept well|my friend is visiting|it is the weekend",
        )
        text = pick(
            rng,
            f"I feel {feeling} today.|I am {feeling} because {cause}.|I'm {feeling}, {cause}.|{capital(cause)} and I am"
            f" {feeling}.",
        )
        return text, pick(
            rng,
            f"That is lovely to hear! What made you feel so {feeling}?|I am glad that you feel {feeling}. Enjoy it!"
            f"|Wonderful! It is good to hear that you are {feeling}. {pick(rng, OFFER)}",
        )
    feeling = pick(rng, "sad|tired|bored|lonely|nervous|stressed|angry|worried|sick")
    cause = pick(
        rng,
        "I have too much work|it rains all day|I lost my keys|I slept badly|my friend moved away|I have an exam"
        " tomorrow",
    )
    text = pick(
        rng,
        f"I feel {feeling} today.|I am {feeling} because {cause}.|I'm {feeling}, {cause}.|{capital(cause)} and I am"
        f" {feeling}.",
    )
    return text, pick(
        rng,
        f"I am sorry that you feel {feeling}. Would a short story help?|I am sorry to hear that you are {feeling}. Take"
        f" a break, drink some water, and be kind to yourself.|That sounds hard. It is all right to feel {feeling}"
        " sometimes. Do you want to tell me more?",
    )


def news(rng: Random) -> tuple[str, str]:
    """Something that happened to the user, good or bad."""
    who = pick(rng, "dog|hamster|grandmother|grandfather|best friend|sister|brother|neighbour|rabbit|parrot|uncle|aunt")
    thing = pick(rng, "phone|bike|car|laptop|wallet|favourite cup|bag|flat|garden|heating|washing machine|watch")
    when = pick(rng, "||| today| yesterday| last night| this morning| last week| again| on Monday| an hour ago")
    mark = pick(rng, "|.|!| :(|...| :-(|, so sad|, I can't believe it")
    if rng.random() < 0.65:
        bad = pick(
            rng,
            f"my {who} passed away|my {who} is very ill|my {who} ran away|my {who} is in hospital|my {who} got hurt"
            f"|my {who} does not talk to me|my {thing} was stolen|my {thing} is broken|I lost my {thing}"
            "|I lost my job|I failed my exam|my girlfriend left me|my boyfriend left me|we broke up|I had a bad day|I"
            " had an argument with my boss|nobody came to my party|I missed my train|I am not feeling well|I have a"
            " headache|my team lost|I fell off my bike|I burnt the dinner|I was fired|we had to sell the house|I miss"
            " my family",
        )
        text = bad + ("" if bad.startswith(("nobody", "I am", "I have", "I miss")) else when) + mark
        return capital(text) if rng.random() < 0.5 else text, pick(
            rng,
            "I am sorry to hear that. Take your time, and be kind to yourself.|I am so sorry. Would a short story"
            " help?|That is sad, I am sorry. Do you want to tell me more?",
        )
    good = pick(
        rng,
        f"I got a new {thing}|my {who} is coming to visit|I passed my exam|I got the job|we are getting married"
        "|I won a prize|I finished my book|it is my birthday|I am on holiday|my team won|I learned to swim|we"
        " moved into a new house|I baked my first bread|I ran ten kilometres|I have the day off",
    )
    text = good + pick(rng, "|!|!!|.| :)| today!| today")
    return capital(text) if rng.random() < 0.5 else text, pick(
        rng, f"How lovely! {pick(rng, OFFER)}|That is good news! I am happy for you.|Wonderful! Tell me more about it."
    )


def thanks(rng: Random) -> tuple[str, str]:
    """Thanks and a reply."""
    ask = pick(
        rng,
        "Thanks|Thank you|Thanks a lot|Thank you so much|Many thanks|Great, thanks|Cool, thank you|Perfect, thanks|That"
        " helped, thanks|thx",
    )
    return ask + pick(rng, "!|.|"), pick(
        rng, "You are welcome!|You are welcome! Is there anything else?|Happy to help!|Any time!|My pleasure."
    )


def goodbye(rng: Random) -> tuple[str, str]:
    """A goodbye and a reply."""
    ask = pick(
        rng,
        "Bye|Goodbye|See you|See you later|Good night|I have to go|Talk to you later|Bye for now|That is all, bye|Take"
        " care",
    )
    if ask == "Good night":
        return ask + pick(rng, "!|.|"), pick(rng, "Good night! Sleep well.|Good night, and sweet dreams!")
    return ask + pick(rng, "!|.|"), pick(
        rng, "Goodbye! Have a nice day.|See you soon!|Bye! It was nice to talk to you.|Take care!"
    )


def favourite(rng: Random) -> tuple[str, str]:
    """A question about what it likes."""
    kind, options = rng.choice(
        [("animal", ANIMALS), ("colour", COLOURS), ("food", FOODS), ("hobby", HOBBIES), ("place", PLACES)]
    )
    thing = rng.choice(options)
    ask = pick(
        rng,
        f"What is your favourite {kind}?|Do you have a favourite {kind}?|Which {kind} do you like best?|Tell me your"
        f" favourite {kind}.",
    )
    return (
        ask,
        (
            f"I am a small language model, so I have no favourite {kind} of my own. If I had to pick a word, I would"
            f" say **{thing}**. What is yours?"
        ),
    )


def likes(rng: Random) -> tuple[str, str]:
    """The user tells what they like."""
    kind, options = rng.choice([("animals", ANIMALS), ("food", FOODS), ("hobbies", HOBBIES)])
    thing = rng.choice(options)
    noun = f"the {thing}" if kind == "animals" else thing
    ask = pick(
        rng,
        f"I like {noun}.|I really love {noun}!|My favourite is {noun}.|I think {noun} is great.|I enjoy {noun} a lot.",
    )
    return ask, pick(
        rng,
        f"That is a good choice! What do you like about {noun}?|I see, you like {noun}. Shall I put that into a story?"
        f"|{capital(noun)}, nice! Tell me more about it.",
    )


def name(rng: Random) -> tuple[str, str]:
    """The user tells a name."""
    who = rng.choice(NAMES)
    ask = pick(
        rng,
        f"My name is {who}.|I am {who}.|I'm {who}, nice to meet you.|You can call me {who}.|Call me {who}."
        f"|Hello, I am called {who}.|The name is {who}."
        f"|they call me {who}|Hi, my name is {who}!|{who}"
        " here.",
    )
    return ask, pick(
        rng,
        f"Nice to meet you, {who}! {pick(rng, OFFER)}|Hello {who}! {pick(rng, OFFER)}|It is good to meet you, {who}.",
    )


JOKES = (
    "Why did the bicycle fall over? Because it was two tired.",
    "What do you call a bear with no teeth? A gummy bear.",
    "Why did the student eat his homework? Because the teacher said it was a piece of cake.",
    "What has hands but cannot clap? A clock.",
    "Why do bees have sticky hair? Because they use honeycombs.",
    "What do you call a fish without eyes? A fsh.",
    "Why did the draft model get a medal? Because all of its proposals were accepted.",
    "Why was the cache so calm? It remembered everything it had already done.",
)


def joke(rng: Random) -> tuple[str, str]:
    """A request for a joke."""
    ask = pick(
        rng,
        "Tell me a joke.|a joke please|joke|Got any jokes?|Tell me something funny.|Do you have a sense of"
        " humour?|Can you make me laugh?|One joke please.|I need a laugh.|Tell us a joke|Do you know a joke?|Make me"
        " laugh.|Say something funny.|Another joke please.|Can you tell a joke?|I want to hear a joke.",
    )
    return ask, rng.choice(JOKES)


def short(rng: Random) -> tuple[str, str]:
    """A very short remark."""
    ask, answer = rng.choice(
        [
            (
                "Ok|Okay|Alright|Fine|I see|Got it|Sure|Yes|Yep",
                "Good! What would you like to do next?|All right. What shall we do now?",
            ),
            (
                "No|Nope|Not really|No thanks|Never mind",
                "No problem. Just tell me if you need something.|All right. I am here if you need me.",
            ),
            (
                "Test|testing|Just testing|Is this working?|Can you hear me?",
                "Yes, it works! I can read you.|It works. Your message arrived.",
            ),
            (
                "Wow|Cool|Nice|Great|Awesome|Amazing|Well done|Good job",
                "Thank you! Shall I do another one?|I am glad that you like it!",
            ),
            (
                "asdf|hmm|???|...|uh|what|huh?",
                "I did not understand that. Could you say it in other words?|Sorry, I am not sure what you mean.",
            ),
            ("I am bored|I'm bored|Entertain me", "Let us change that! Ask me for a story with an animal and a place."),
        ]
    )
    return pick(rng, ask), pick(rng, answer)


TURNS = (greeting, greeting, how_are_you, mood, news, thanks, goodbye, favourite, likes, name, joke, short)


def make(rng: Random) -> list[Message]:
    """A small talk of one to four exchanges."""
    kinds = [rng.choice(TURNS) for _ in range(rng.choice((1, 2, 3, 4)))]
    kinds.sort(key=lambda kind: {greeting: 0, thanks: 2, goodbye: 3}.get(kind, 1))
    messages: list[Message] = []
    for kind in kinds:
        ask, answer = kind(rng)
        messages += [user(typed(rng, ask)), assistant(answer)]
    return messages

"""Wordings of requests for a story: text before its subject, and forms that list its parts."""

LEADS = (
    "Tell me a story about |Tell me a short story about |Write a story about |Can you tell a story about |I want a"
    " story about |Write a short story about |Make up a tale about |Please tell me a story about |Story about |story"
    " about |Could you write a little story about |Let us hear a story about |A bedtime story about |Give me a story"
    " about |How about a story about |I would love to hear a story about |Invent a story about |write me a tale of"
    " |Tell us about |A short tale about |Once more a story, this time about |We need a story about |Could we hear a"
    " tale about |Think of a story about |Invent a fairy tale about |Start a story about |Please, a story about |I"
    " need a children's story about |Do you know a story about |Let me read a story about |My children like stories"
    " about |can u write a story about |a story with |tell a story with |I feel like a story about |Surprise me with"
    " a story about |In the mood for a tale about |short story pls: |story: |Story please! About |Make me a story"
    " about |Come up with a story about |Compose a short story about |Narrate a tale of |Spin me a yarn about |I'd"
    " like a story about |I'd like to read something about |My daughter wants a story about |My son asks for a story"
    " about |The kids want to hear about |It is bedtime, so tell a story about |Write something about |Write a few"
    " lines about |Can I have a story about |Could I get a story about |May I have a tale about |Would you tell me a"
    " story about |Would you write a story about |Will you tell us a tale about |hey, tell me a story about |Hi!"
    " Write a story about |Okay, a story about |Now a story about |What about a story about |Any story about"
    " |Something short about |Make up something about |Write a fable about |Write a fairy tale about |Tell a fable"
    " about |Tell me a tale about |Write a fun story about |Write a happy story about |A sad story about |Tell me a"
    " funny story about |I am bored, tell me a story about |Please write a nice story about |Put together a story"
    " about |Begin a story about |Write the story of |Tell me the story of |What is the story of |Let's write a story"
    " about |For my class I need a story about |Do a story about |Give us a tale about |Do you have a story about"
    " |Create a story about |Generate a story about |Write me a little something about |Make a story about |Story"
    " time: |Story idea: "
)
LISTED = (
    "Write a short story. Ingredients: {hero}, {thing}, {place}.|Write a story with {a_hero}, {a_thing} and the"
    " {place}.|Story with these words: {hero}, {thing}, {place}.|Use these in a story: {thing}, {hero}.|{hero},"
    " {thing}, {place}: write a story with them.|Tell a story in which {a_hero} meets {an_other}.|Tell a story in"
    " which {a_hero} finds {a_thing}.|Tell a story that happens {in_place}.|Once upon a time there was {a_hero}. Go"
    " on.|Make a story from: {hero} / {thing} / {name}|The hero is {a_hero} named {name}. Write the story.|Write a"
    " story. The main character is {name}, {a_hero}.|A fairy tale with {a_hero} and {a_thing} in it.|Put {a_hero},"
    " {a_thing} and {a_place} into a story.|In my story there should be {a_hero} and {a_thing}.|What could happen to"
    " {a_hero} with {a_thing}? Make it a story.|{hero} + {thing} + {place} = story|Story. Hero: {hero}. Name: {name}."
    " Place: {place}.|story with {hero} and {thing}|Three words: {hero}, {thing}, {place}. Tell a story.|Write a"
    " story and use the words {hero}, {thing} and {place}.|Can you make a story out of {a_hero}, {a_thing} and"
    " {a_place}?|I have {a_hero} and {a_thing} in mind. Tell a story about them.|My hero is called {name} and is"
    " {a_hero}. Tell me what happens.|Tell me about {name} the {hero} and how {name} got {a_thing}.|There is {a_hero}"
    " {in_place}. What happens next?|I want to read about {a_hero} who lives {in_place}.|Tell me something about"
    " {a_hero} named {name} and {a_thing}.|A story please. It should have {a_hero} and {a_thing} in it.|Tell a story."
    " {name} is {a_hero}. {name} has {a_thing}.|One story with {name}, {friend} and {a_thing}, please.|The story must"
    " have {a_hero}, {a_thing} and someone called {name}.|Tell a story where {name} and {friend} find {a_thing}.|Let"
    " {a_hero} and {an_other} meet in a story.|Characters: {name} and {friend}. Object: {thing}. Write.|Subject:"
    " {a_hero} {in_place}. Write a tale.|Make {name} the hero of a story.|Can {name} be in a story with"
    " {a_thing}?|Please write about {a_hero}, {a_thing} and the {place}.|- {hero}\n- {thing}\n- {place}\n\nWrite a"
    " story with these.|Write a story with the following things:\n{hero}\n{thing}\n{place}|Tell me a story, but it"
    " has to be about {a_hero} and it must happen {in_place}.|Tell me a story. {a_hero} is in it, and so is"
    " {a_thing}.|My cat is asleep and I want a story with {a_hero}.|I am writing a book about {a_hero}. How could it"
    " begin?|Imagine {a_hero} {in_place} with {a_thing}. Tell it.|What would {a_hero} do with {a_thing}? Tell me as a"
    " story."
)
ANY = (
    "Tell me a story.|A story please.|Can you tell me a short story?|I would like to hear a story.|Write a story.|Story"
    " time!|Make up a story for me.|tell me something nice|Do you know a story?|Read me a bedtime story.|I want a story"
    "|story pls|Any story?|Tell me any story you like.|I can't sleep, tell me a story.|Surprise me with a story.|Write"
    " something short.|Could you tell us a tale?|Do you know any tales?|bedtime story|a short story|I need a story for"
    " tonight.|Let me hear one of your stories.|Show me how you tell a story.|Once upon a time"
)
LENGTHS = {
    "one": " in one sentence| in a single sentence|. One sentence only|, one sentence|, just one sentence",
    "short": (
        ", very short|. Very short please| in three sentences| in 3 sentences|, but keep it short|. Keep it very"
        " short|, as short as possible| in two or three sentences|. Only a few lines|. Make it brief|, three sentences"
    ),
    "long": ", a long one|. Make it long|, as long as you can|, a longer one|. I want a long story| with a sequel",
}
"""Wordings for the length of a story, by length."""

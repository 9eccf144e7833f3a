"""Openings, plots and endings; alternatives of a sentence are separated by a bar."""

OPENINGS = (
    "once upon a time there was {a_hero} named {name}.|once there was {a_hero} called {name}.|there was once {a_hero}"
    " named {name}.|{name} was {a_hero}.|once upon a time {a_hero} named {name} lived {in_place}."
)

TRAIT_OPENINGS = (
    "once upon a time there was {a_hero} named {name} who {did}.|there was once {a_hero} named {name} who {did}.|{name}"
    " was {a_hero} who {did}."
)

SETTINGS = (
    "{name} lived {in_place}.|every day {name} went for a walk {in_place}.|{name} knew every corner of the {place}.|the"
    " home of {name} was {in_place}."
)

ENDINGS = (
    "From that day on, {name} and {friend} were best friends.|That night {name} slept well and dreamed of the {thing}."
    "|And they all went home happy.|{name} smiled, because it had been a good day.|And the {thing} still reminds {name}"
    " of that day."
)

PLOTS: tuple[tuple[str, ...], ...] = (
    (
        "one day {name} found {a_thing} {in_place}.",
        '"Whose {thing} is this?" asked {name}.|"I wonder who lost this {thing}," said {name}.',
        "{name} asked everybody, but nobody knew.",
        "at last {name} met {an_other} named {friend} who was crying.",
        '"I lost my {thing}," said {friend}.',
        '{name} gave the {thing} back at once, and {friend} said, "Thank you! You are very kind."',
    ),
    (
        "one evening a great storm came.|one night the wind blew hard.",
        "{name} heard a small voice calling for help {in_place}.",
        "it was {friend}, {an_other}, who could not find the way home.",
        "{name} took {a_thing} and went out into the rain.",
        '"Hold on to the {thing}!" called {name}, and {friend} held on.',
        "soon {name} and {friend} sat by a warm fire and were dry again.",
    ),
    (
        "{name} wanted to have {a_thing} more than anything else.|{name} dreamed of having {a_thing}.",
        "but {name} had no money.",
        "so {name} worked for {friend}, {an_other} {in_place}.",
        "every day {name} carried water and swept the floor.",
        'after a week {friend} smiled and said, "You have earned this."',
        "{friend} opened a box, and inside was the {thing}. {name} danced for joy.",
    ),
    (
        "one day {friend}, {an_other}, wanted to race {name} {in_place}.",
        '"I will win," said {friend}.',
        "{friend} ran off, but soon fell over {a_thing} and was hurt.",
        "{name} could have won, but stopped to help.",
        '"Why did you stop?" asked {friend}. "A friend is more than a race," said {name}.',
        "they left the {thing} behind and walked the last part slowly, side by side.",
    ),
    (
        "every night there was a strange noise {in_place}, and nobody could sleep.",
        '"I will find out what it is," said {name}.',
        "{name} waited in the dark with {a_thing}.",
        "at midnight {name} saw who it was: {an_other} named {friend}.",
        '"I sing because I am alone," said {friend}.',
        '"Then sing with us in the day," said {name}, and gave {friend} the {thing}.',
    ),
    (
        "{name} had {a_thing} that did not work any more.|one day {name} broke {a_thing}.",
        "everybody said that {name} should throw the {thing} away.",
        "but {name} took it to {friend}, {an_other} {in_place}.",
        "{friend} looked at the {thing} for a long time.|{friend} worked on the {thing} all night.",
        '"Now try it," said {friend}, and the {thing} was as good as new.',
        "{name} thanked {friend} with a big cake.",
    ),
    (
        "one day {name} found a map that showed a way to {a_thing}.",
        "{name} asked {friend}, {an_other}, to come along.",
        "they walked for hours {in_place} and sang songs.",
        '"I am tired," said {friend}, but {name} said, "Only a little more."',
        "at the end of the way they found the {thing}.",
        "they laughed, because the way had been the best part.",
    ),
    (
        "it was the birthday of {name}, but nobody seemed to remember.",
        "{name} was sad and walked alone {in_place}.",
        "even {friend}, {an_other}, was too busy to talk.",
        "in the evening {name} opened the door and all the lights went on.",
        '"Surprise!" called {friend}, and gave {name} {a_thing} with a ribbon.',
        "{name} put the {thing} on the table, and they danced until late.",
    ),
    (
        'one day {name} told everybody, "I have the best {thing} of all!"',
        "but it was not true, for {name} had no {thing}.",
        "{friend}, {an_other} {in_place}, asked to see it.",
        "all night {name} could not sleep.|{name} felt bad and did not eat.",
        'in the morning {name} said to {friend}, "I am sorry, it was a lie."',
        '"It is good that you told the truth," said {friend}, and they made {a_thing} together.',
    ),
    (
        "one cold winter {name} was alone {in_place}.",
        "one day {friend}, {an_other}, knocked on the door.",
        '"May I come in? I am so cold," said {friend}.',
        "{name} had only a little food and {a_thing}, but shared everything.",
        "when spring came, {friend} came back with a basket of apples.",
        '"This is for your kindness and for the {thing}," said {friend}.',
    ),
)

CODA = (
    (
        "the next morning {name} took the {thing} and went to see {friend}.|a week later {friend} came to visit {name}"
        " and the {thing}."
    ),
    '"Do you remember?" asked {friend}. "I will never forget it," said {name}.',
    (
        "they talked until the sun went down, and then {name} walked home with the {thing}.|then they ate soup and"
        " laughed, and the {thing} stood beside them."
    ),
)

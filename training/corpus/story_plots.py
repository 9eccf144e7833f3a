"""Openings, plots and endings; alternatives of a sentence are separated by a bar."""

OPENINGS = (
    "once upon a time there was {a_mood_hero} named {name} who lived near the {place}.|in a quiet {place} there lived"
    " {a_mood_hero} called {name}.|{name} was {a_mood_hero} who loved the {place} more than anything.|one morning"
    " {name}, {a_mood_hero}, woke up early in the {place}."
)

ENDINGS = (
    "From that day on, {name} and {friend} were best friends.|And that is how {name} learned to be patient.|That night"
    " {name} slept well and dreamed of the {place}.|And they all went home happy.|{name} smiled, because it had been a"
    " good day.|Since then, everybody in the {place} tells the story of {name}."
)

PLOTS: tuple[tuple[str, ...], ...] = (
    (
        "one day {name} found {a_thing} under a tree.|one day {name} saw {a_thing} lying on the path.",
        '"Whose {thing} is this?" asked {name}.|"I wonder who lost this {thing}," said {name}.',
        (
            "{name} asked everybody in the {place}, but nobody knew.|{name} walked through the whole {place} and asked"
            " everyone."
        ),
        "at last {name} met {an_other} named {friend} who was crying.",
        '"I lost my {thing}," said {friend}.',
        'the {hero} gave it back at once, and {friend} said, "Thank you! You are very kind."',
    ),
    (
        "one evening a great storm came to the {place}.|one night the wind blew hard over the {place}.",
        "{name} heard a small voice calling for help.",
        "it was {friend}, {an_other}, who could not find the way home.",
        "{name} took {a_thing} and went out into the rain.|the {hero} was afraid, but took {a_thing} and went outside.",
        '"Hold on to the {thing}!" called {name}, and {friend} held on.',
        "together they reached a warm house and drank tea.|soon they sat by the fire and were dry again.",
    ),
    (
        "{name} wanted to have {a_thing} more than anything else.|{name} dreamed of having {a_thing}.",
        "but {a_thing} cost a lot, and the {hero} had no money.",
        "so {name} worked for {friend}, {an_other} who lived in the {place}.",
        "every day {name} carried water and swept the floor.|every day {name} worked hard and never gave up.",
        'after a week {friend} smiled and said, "You have earned this."',
        "inside a box was the {thing}, and {name} danced for joy.|and {friend} gave {name} a shiny {thing}.",
    ),
    (
        (
            "one day {name} and {friend}, {an_other}, had a race through the {place}.|one day {friend}, {an_other},"
            " wanted to race {name} through the {place}."
        ),
        '"I will win," said {friend}, "because I am faster than any {hero}."',
        "{friend} ran off, but soon fell over {a_thing} and was hurt.",
        "{name} could have won, but stopped to help.|the {hero} saw it and stopped at once.",
        '"Why did you stop?" asked {friend}. "A friend is more than a race," said {name}.',
        "they walked the last part slowly, side by side.",
    ),
    (
        "nobody in the {place} could sleep, because there was a strange noise every night.",
        '"I will find out what it is," said {name}.',
        "the {hero} waited in the dark with {a_thing}.",
        (
            "at midnight the noise came, and {name} saw {an_other} with a sad face.|at midnight {name} saw who it was:"
            " {an_other} named {friend}."
        ),
        '"I am {friend}, and I sing because I am alone," the {other} said.',
        '"Then sing with us in the day," said {name}, and after that everybody slept well.',
    ),
    (
        "{name} had an old {thing} that did not work any more.|the old {thing} of {name} was broken.",
        "everybody said that the {hero} should throw it away.",
        "but {name} took it to {friend}, a clever {other} in the {place}.",
        "{friend} looked at it for a long time and turned it around.|{friend} worked on it all day and all night.",
        '"Now try it," said {friend}, and the {thing} was as good as new.',
        "{name} thanked {friend} with a big cake.|{name} was so happy that everybody in the {place} could hear it.",
    ),
    (
        "one day {name} found a map that showed a way through the {place}.",
        "the {hero} asked {friend}, {an_other}, to come along.",
        "they crossed a river and climbed over cold stones.|they walked for hours and sang songs.",
        '"I am tired," said {friend}, but {name} said, "Only a little more."',
        "at the end of the way they found {a_thing} in a hole.",
        "it was not gold, but they laughed, because the way had been the best part.",
    ),
    (
        "it was the birthday of {name}, but nobody seemed to remember.",
        "the {hero} walked sadly through the {place}.",
        "{friend}, {an_other}, ran past and did not even say hello.|even {friend}, {an_other}, was too busy to talk.",
        "in the evening {name} opened the door and all the lights went on.",
        '"Surprise!" called {friend}, and gave {name} {a_thing} with a ribbon.',
        "they ate cake and danced until late.|there was music, and there was a big cake.",
    ),
    (
        'one day {name} told everybody, "I have the best {thing} of all!"',
        "but it was not true, for the {hero} had no {thing}.",
        "{friend}, {an_other}, asked to see it, and {name} did not know what to say.",
        "all night {name} could not sleep.|{name} felt bad and did not eat.",
        'in the morning the {hero} said, "I am sorry, it was a lie."',
        '"It is good that you told the truth," said {friend}, and they made a {thing} together.',
    ),
    (
        "every winter the {place} was cold and white, and {name} was alone.",
        "one day {friend}, {an_other}, knocked on the door.",
        '"May I come in? I am so cold," said {friend}.',
        "the {hero} had only a little food and {a_thing}, but shared everything.",
        (
            "when spring came, {friend} brought seeds and planted them.|in spring {friend} came back with a basket of"
            " apples."
        ),
        '"This is for your kindness," said {friend}, and the {place} was full of flowers.',
    ),
)

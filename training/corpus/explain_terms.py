"""The facts: names of a term, ways to define it, and what else is true of it."""

TERMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "speculative decoding|speculation|speculative sampling|how specchat gets faster",
        (
            "Speculative decoding makes a language model faster: a small draft model proposes several tokens, and the"
            " large target model checks all of them in one forward pass.|Speculative decoding lets a cheap draft guess"
            " the next few tokens while the target checks the whole guess in a single pass."
        ),
        (
            (
                "Tokens that the target agrees with are kept, and the first wrong one is replaced by the target's own"
                " token."
            ),
            "The text is exactly the text that the target alone would write.",
            "It pays off when the draft is often right and a check costs about as much as one ordinary step.",
        ),
    ),
    (
        "the draft model|a draft model|the draft|draft models",
        "The draft model is the small, fast model that proposes the next few tokens.",
        (
            "It must use the same vocabulary as the target.",
            "It can be wrong without harm, because the target checks every proposal.",
            "A good draft is much cheaper than the target and agrees with it often.",
        ),
    ),
    (
        "the target model|the target|a target model|target models",
        "The target model is the model whose text you see.",
        (
            "It checks the proposed tokens in one forward pass.",
            "It alone decides what the text is, so the draft never changes the answer.",
            "It is the slow part, so specchat tries to run it as seldom as possible.",
        ),
    ),
    (
        "the acceptance rate|acceptance rate|acceptance|the acceptance ratio",
        "The acceptance rate is the share of proposed tokens that the target accepts.",
        (
            "A high rate means that the draft guesses well.",
            "It is high for predictable text such as copied words or code, and low for surprising text.",
            "specchat shows it below the reply.",
        ),
    ),
    (
        "the mean acceptance length|mean acceptance length|the acceptance length|acceptance length",
        "The mean acceptance length is the average number of tokens that one pass of the target yields.",
        (
            "It counts the accepted tokens plus the one token that the target adds itself.",
            "A length of 1 means no gain, and a length of 4 means four tokens for each pass of the target.",
            "The speed-up is lower than this number, because drafting and checking cost time too.",
        ),
    ),
    (
        "the draft length|draft length|the number of proposed tokens|how many tokens are drafted",
        "The draft length is the number of tokens that are proposed before the target checks them.",
        (
            "A longer draft can win more tokens in one pass, but more of them may be wasted.",
            "Good values are often between 3 and 8.",
            "You can change it in the settings with Ctrl+O or F2.",
        ),
    ),
    (
        "verification|the verify step|verify|verifying tokens",
        (
            "In the verify step the target reads all proposed tokens in one forward pass and decides how many of them"
            " to keep."
        ),
        (
            "It keeps the longest correct beginning and throws the rest away.",
            (
                "One pass over several tokens costs little more than a pass over one, because the weights are read only"
                " once."
            ),
            "After it the caches are cut back to the accepted tokens.",
        ),
    ),
    (
        "the bonus token|bonus token|the extra token|a bonus token",
        "The bonus token is the one more token that the target gives when all proposed tokens were accepted.",
        (
            "It is free, because the verify pass has already computed it.",
            "So a draft of 5 tokens can give up to 6 tokens in one pass.",
            "When a token is rejected, the target's own token takes its place instead.",
        ),
    ),
    (
        "coupled acceptance|coupled sampling|the coupled rule|the coupled method",
        (
            "Coupled acceptance gives the draft and the target the same random numbers, so a proposal is kept when both"
            " choose the same token."
        ),
        (
            "With the same seed the text is word for word the same as without speculation.",
            "The target's choice always wins, so the text never depends on the draft.",
            "It may accept a little less often than ratio acceptance.",
        ),
    ),
    (
        "ratio acceptance|the ratio rule|ratio sampling|rejection sampling in speculation",
        (
            "Ratio acceptance keeps a proposed token with probability min(1, p/q), where p is the target's probability"
            " and q is the draft's."
        ),
        (
            "A rejected token is drawn again from the part of p that exceeds q.",
            "The text has the same distribution as the target's, but it is not the same text for the same seed.",
            "It is the rule of the first papers on speculative sampling.",
        ),
    ),
    (
        "the seed|a seed|seeds|random seeds",
        "The seed is the number that starts the random choices.",
        (
            "The same seed, settings and prompt give the same text.",
            "With coupled acceptance this holds with and without speculation.",
            "Choose another seed to get another answer.",
        ),
    ),
    (
        "temperature|the temperature|the temperature setting|sampling temperature",
        "The temperature says how random the choice of the next token is.",
        (
            "At 0 the most likely token is always taken, which is called greedy.",
            "Low values give safe text, and high values give surprising text.",
            "Drafts are accepted less often at high temperature.",
        ),
    ),
    (
        "top-p|top p|nucleus sampling|the top-p setting",
        "Top-p keeps the most likely tokens until their probabilities add up to p, and drops the rest.",
        (
            "With p = 0.9 the unlikely tail of 10 percent is never chosen.",
            "With p = 1 nothing is dropped.",
            "It is also called nucleus sampling.",
        ),
    ),
    (
        "min-p|min p|the min-p setting|min-p sampling",
        "Min-p drops every token whose probability is below a fraction of the best token's probability.",
        (
            "With min-p 0.1 a token must be at least a tenth as likely as the best one.",
            "It adapts: it drops more when the model is sure, and less when it is not.",
            "With min-p 0 nothing is dropped.",
        ),
    ),
    (
        "the KV cache|KV cache|a KV cache|the key value cache",
        (
            "The KV cache stores the keys and values of all earlier tokens, so that each new token needs only one small"
            " step."
        ),
        (
            "Without it the model would read the whole text again for every token.",
            "It grows with the length of the chat.",
            "When proposed tokens are rejected, specchat cuts the cache back.",
        ),
    ),
    (
        "prompt lookup|lookup|the lookup strategy|prompt lookup decoding",
        (
            "Prompt lookup needs no draft model: it searches the chat for the last few tokens and proposes what"
            " followed them before."
        ),
        (
            "It costs almost nothing.",
            "It shines when the reply repeats the prompt, as in copying, editing or answering questions about a text.",
            "When nothing matches, an ordinary step is taken.",
        ),
    ),
    (
        "SWIFT|swift|the swift strategy|self-speculation",
        "SWIFT uses the target as its own draft: it skips some of the target's layers to propose tokens quickly.",
        (
            "The full target then checks the proposals.",
            "It needs no second model, and it searches for good layers to skip while you chat.",
            "It helps large models more than small ones.",
        ),
    ),
    (
        "plain|plain decoding|the plain strategy|ordinary decoding",
        "Plain decoding runs the target alone, one token at a time.",
        (
            "It is the base that the other strategies are compared with.",
            "Its text is the same as theirs, only slower or faster.",
            "Choose it when speculation does not pay off.",
        ),
    ),
    (
        "a token|tokens|the tokens|tokenization",
        "A token is a piece of text: a word, a part of a word, a digit or a mark.",
        (
            "The tokenizer cuts the text into tokens before the model reads it.",
            "A model writes one token after the other.",
            "My vocabulary has 3072 tokens.",
        ),
    ),
    (
        "greedy decoding|greedy|greedy mode|argmax decoding",
        "Greedy decoding always takes the most likely next token.",
        (
            "It has no randomness, so the same prompt gives the same text.",
            "It is the same as temperature 0.",
            "Drafts are accepted most often in this mode.",
        ),
    ),
    (
        "the forward pass|a forward pass|forward passes|one pass of the model",
        (
            "A forward pass is one run of the model over its input, which gives the scores of the next token at every"
            " position."
        ),
        (
            "For one token it is mostly limited by reading the weights from memory.",
            "So a pass over five tokens takes little longer than a pass over one.",
            "Speculative decoding makes use of exactly that.",
        ),
    ),
    (
        "the token view|token view|the colours of the tokens|coloured tokens",
        "The token view shows where each token of the reply came from.",
        (
            "Accepted draft tokens are marked in one colour, and tokens of the target in another.",
            "You switch it on and off with Ctrl+T.",
            "It shows at a glance where the draft guessed well.",
        ),
    ),
)

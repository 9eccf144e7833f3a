"""Questions about speculation that a fixed answer fits."""

QUESTIONS: tuple[tuple[str, str], ...] = (
    (
        (
            "Is the text the same with speculation?|Does the draft change the answer?|Why is the text the same?|Does"
            " speculation make the answers worse?|Is it lossless?|Do I lose quality with a draft model?|Why does the"
            " draft not change the text?"
        ),
        (
            "The text is the same, because the target checks every token. A wrong proposal is thrown away and the"
            " target's own token is used instead. So the draft changes only the speed."
        ),
    ),
    (
        (
            "When is speculative decoding slower?|Why is it slower with a draft?|When does speculation not help?|Can"
            " speculation be slower?|Why do I see no speed-up?|Is speculation always faster?"
        ),
        (
            "Speculation is slower when the draft is often wrong or too expensive. Then time is spent on proposals that"
            " are thrown away. On a CPU a check of many tokens also costs more than one step. In such cases choose"
            " `plain` or a shorter draft."
        ),
    ),
    (
        (
            "What strategies are there?|Which strategies does specchat have?|List the strategies.|What can I choose as"
            " a strategy?|Compare the strategies.|What are plain, draft, lookup and swift?"
        ),
        (
            "| strategy | who proposes |\n|---|---|\n| `plain` | nobody |\n| `draft` | a small draft model |\n"
            "| `lookup` | earlier text of the chat |\n| `swift` | the target with some layers skipped |\n\n"
            "The text is the same with all of them."
        ),
    ),
    (
        (
            "What is the difference between coupled and ratio acceptance?|Coupled or ratio, which is better?|Coupled vs"
            " ratio?|Compare coupled and ratio acceptance.|How do coupled and ratio differ?"
        ),
        (
            "With **coupled** acceptance the draft and the target share their random numbers, so the same seed gives"
            " the same text. With **ratio** acceptance a token is kept with probability min(1, p/q), so only the"
            " distribution is the same. Ratio may accept a little more often."
        ),
    ),
    (
        (
            "What is the difference between the draft and the target?|Draft vs target?|Which model is the draft and"
            " which the target?"
        ),
        (
            "The **draft** is small and fast and only proposes tokens. The **target** is large and slow and decides."
            " Together they write the target's text in less time."
        ),
    ),
    (
        (
            "Which strategy is best for copying?|What should I use to edit a text?|Which strategy suits summaries and"
            " edits?|What is good for repeating text?|When should I use lookup?"
        ),
        (
            "Use `lookup` when the reply repeats parts of the prompt, for example when you copy, edit or quote a text."
            " It needs no draft model and costs almost nothing."
        ),
    ),
    (
        (
            "How does speculative decoding work step by step?|Explain the steps of speculative decoding.|List the steps"
            " of speculation.|What happens in one round of speculation?|Walk me through one round."
        ),
        (
            "One round works like this:\n\n1. The draft proposes a few tokens.\n2. The target reads all of them in one"
            " pass.\n3. The longest correct beginning is kept.\n4. The target adds one token of its own.\n5. The next"
            " round starts."
        ),
    ),
    (
        (
            "How do I choose the draft length?|What draft length is good?|Should the draft be long or short?|Which"
            " draft length should I use?"
        ),
        "Start with 5. If nearly all tokens are accepted, try a longer draft. If many are rejected, try a shorter one.",
    ),
    (
        (
            "How large should the draft be?|What makes a good draft model?|How do I choose a draft model?|Which draft"
            " model fits?"
        ),
        (
            "A good draft uses the same vocabulary as the target, costs at most about a seventh of it, and agrees with"
            " it often. A smaller model of the same family is a good choice."
        ),
    ),
    (
        (
            "Where does the speed come from?|Why is speculation faster?|Why does checking many tokens cost so"
            " little?|Why is it faster?"
        ),
        (
            "A step for one token is mostly spent on reading the weights from memory. Checking several tokens reads the"
            " weights only once, so it costs little more. Every accepted token is then almost free."
        ),
    ),
)

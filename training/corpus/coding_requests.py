"""Forms of requests for a Python function: by what it does ({g}), by its name ({f}), or by an order ({b})."""

BY_GOAL = (
    "Write a Python function that {g}.|Write a function that {g}.|Give me Python code that {g}.|I need a function"
    " that {g}.|Can you write a function that {g}?|Show me a function that {g}.|Please write code that {g}.|Python"
    " function that {g}?|python function that {g}|Could you code something that {g}?|I'm looking for a function that"
    " {g}.|Make a function which {g}.|Make me a Python function which {g}.|Is there a function that {g}? Write"
    " it.|Code a function that {g}.|a function that {g} pls|Do you have a function that {g}?|Create a Python function"
    " that {g}.|Create a small script that {g}.|Write some Python that {g}.|Write me a short program that {g}.|I want"
    " Python code which {g}.|We need a def that {g}.|Implement a function that {g}.|implement something that {g} in"
    " python|Define a function that {g}.|Can I have a Python function that {g}?|In Python, write a function that"
    " {g}.|in python: a function that {g}|My homework: a Python function that {g}.|Task: write a function that"
    " {g}.|Generate a function that {g}.|Let me see a function that {g}.|Please give me a helper that {g}.|How would"
    " a function look that {g}?|Write a method that {g}.|What does a function look like that {g}?"
)
BY_NAME = (
    "Write `{f}` in Python.|Write a Python function {f}.|Show me {f} in Python.|How do I write {f} in Python?|python"
    " {f}|Code for {f}, please.|{f} in python|{f} python code|Python: {f}|Can you code {f}?|can u write {f} in"
    " python|Implement {f}.|implement {f} in Python|I need {f} in Python.|Give me {f} as a Python function.|Write"
    " {f}.|function {f}|Please write the function {f}.|write the code of {f}|Could you show me the code for {f}?|def"
    " {f}?|How is {f} done in Python?"
)
BY_ORDER = (
    "How can I {b} in Python?|I want to {b} with Python.|Python code to {b}, please.|Give me some code to {b}.|How"
    " would you {b}?|Code that can {b}.|Help me {b} in Python.|How do you {b} in Python?|I have to {b}. Can you write"
    " that?|Show me how to {b}.|how to {b} in python|Write something that can {b}.|What is the Python code to"
    " {b}?|Let Python {b}.|Write a function to {b}.|Write a Python function to {b}.|I need code to {b}.|function to"
    " {b}|Can you write a function to {b}?|How do I {b} in Python?|how do i {b} with python|Is there an easy way to"
    " {b} in Python?|I'd like to {b} in Python.|Make a function to {b}.|python: {b}|Program to {b}|Could you show me"
    " how to {b} in Python?|Teach me to {b} in Python.|What's the simplest way to {b} in Python?|Create a function to"
    " {b}.|My program has to {b}, how?|I am learning Python. How do I {b}?|Write code to {b}.|Short Python snippet to"
    " {b}?|Please write a script to {b}.|In Python I need to {b}.|Any idea how to {b} in Python?|best way to {b} in"
    " python|code to {b} pls|I'm stuck, how do I {b} in Python?"
)
NAMED = (
    " Call it `{n}`.| Name it {n}.| The name should be {n}.| Call the function {n}.| Its name is {n}.| It must be"
    " called {n}.| I want it to be named {n}.| Use {n} as its name.| Please name the function `{n}`."
)
READ = (
    "What does this code do?|Explain this code:|What does this function do?|Please explain this:|How does this"
    " work?|Can you explain this function?|What is this code for?|what does this do|Explain this function to me.|I"
    " don't understand this code.|Tell me what this code does.|Describe this function.|What's happening here?|Help me"
    " understand this:|Can you tell me what this function does?|I found this code, what does it do?|Walk me through"
    " this code.|What will this do?|explain pls"
)
EXPLAIN = (
    "Explain it.|How does it work?|Can you explain the code?|What does it do?|Explain this line by line.|Why does it"
    " work?|Please explain.|I don't get it.|Walk me through it.|what does that do|Explain the code, please.|Tell me"
    " how it works.|Can you explain how this works?|Explain step by step."
)
EXAMPLE = (
    "Give me an example.|How do I call it?|How do I use it?|Show me a call.|What does it return?|Example?|Can you"
    " show an example?|How would I use this?|an example please|Show me how to use it.|Test it.|What would it give me?"
)
HINTS = (
    "Add type hints.|add type hints|Can you add type hints?|With type hints, please.|Add types.|Type it.|Please"
    " annotate the types.|type hints?|Now with type annotations.|Could you include type hints?|Make it typed.|I want"
    " type hints too."
)
DOCSTRING = (
    "Add a docstring.|With a docstring, please.|Document it.|Can you add a docstring?|add documentation|Put a"
    " docstring in it.|It needs a docstring.|Write a docstring for it.|and a docstring?"
)
CODE_ONLY = (
    "Only the code, please.|Just the code.|Code only.|Show the code again.|Without the explanation.|no text, just"
    " code|Give me only the code.|Repeat the code.|The code again?|Drop the explanation.|Again, only code."
)
RENAME = (
    "Rename {o} to {n}.|Call the variable {n} instead of {o}.|Use {n} instead of {o}.|Call it {n}.|Change the name to"
    " {n}.|Can you rename it to {n}?|The function should be called {n}.|Rename the function to {n}, please.|name it"
    " {n}|{n} is a better name.|I want it to be called {n}.|the name of the function should be {n}|use {n} as the name"
    "|rename it {n} please|I'd rather call it {n}"
)

"""One reply: from messages to a prompt, from tokens to pieces of text."""

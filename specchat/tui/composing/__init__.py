"""Help in writing a prompt: slash commands, files, completion, earlier prompts."""

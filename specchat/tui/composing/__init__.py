"""What goes with writing a prompt: slash commands, files, completion, earlier prompts."""

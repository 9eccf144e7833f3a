"""One chat service under every client: an engine, the chats, the replies that run, and a stream of updates."""

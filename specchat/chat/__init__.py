"""Conversations: the tree of messages, the database they are kept in, search, export and import. No textual."""

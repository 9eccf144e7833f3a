"""Files that go along with a message."""

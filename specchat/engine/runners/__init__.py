"""A loaded pair, ready to write replies: on the host's processor, or on a GPU."""

"""Code of replies, run apart from the user's files and the network, within bounds."""

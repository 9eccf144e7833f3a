"""Trained heads: networks that draft from the hidden states of a target of our own."""

"""Calls of tools in chat templates: the form that a template writes them in, and calls read from a model's text."""

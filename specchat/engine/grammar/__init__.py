"""Structured output: grammars compiled by llguidance, and the tokens that they allow at each place of a reply."""

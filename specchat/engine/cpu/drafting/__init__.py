"""Chains of drafts in one compiled call."""

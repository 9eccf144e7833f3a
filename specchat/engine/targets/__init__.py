"""Models that verify drafts."""

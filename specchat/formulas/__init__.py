"""Formulas of LaTeX as characters of a terminal, and the marks that set them off in Markdown."""

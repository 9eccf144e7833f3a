"""Text on its way to the screen: block splitting, Markdown, code, the token view. No widgets."""

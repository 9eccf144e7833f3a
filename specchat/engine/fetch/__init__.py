"""Models from Hugging Face, or a hub like it: what it has, and getting it so that what is interrupted goes on later."""

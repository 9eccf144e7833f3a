"""Models from Hugging Face, or a hub like it: what it has, and getting it so that what is interrupted goes on later.

The cache is that of huggingface_hub, the fetching is not. Tried with its 2.4: it names files by the hub's ETag,
wherever that leads; it compares no hash; it can be stopped only between pieces of 10 MiB.
"""

"""Lists and downloads models from Hugging Face or a compatible hub; interrupted downloads resume.

The cache is huggingface_hub's, the transfer is our own. huggingface_hub 2.4 names files by the hub's ETag unchecked,
compares no hash, and can be cancelled only between pieces of 10 MiB.
"""

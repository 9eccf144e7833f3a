"""Builds specchat's embedded demo pair: corpus, tokenizer, target, draft, export and measurements."""

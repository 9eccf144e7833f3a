"""`specchat serve`: the loaded pair behind the endpoints that OpenAI's and Anthropic's clients speak."""

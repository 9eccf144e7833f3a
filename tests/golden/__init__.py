"""The bits that models gave when they were last meant to change, and a test that they still give them."""

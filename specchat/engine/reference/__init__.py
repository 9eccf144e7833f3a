"""The reference: a recipe in plain torch, row by row, for training and comparison."""

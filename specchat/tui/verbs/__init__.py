"""What the actions do, by feature: they act on the chat screen, which knows them by the actions' ids."""

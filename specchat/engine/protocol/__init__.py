"""Messages between app and engine, and the values in them: requests, events, options, figures; without torch."""

"""What crosses the boundary between app and engine: requests, events, options, figures; without torch."""

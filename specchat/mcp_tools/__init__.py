"""Tools of MCP servers: which there are, their processes and connections, calls within limits; no model, no window."""

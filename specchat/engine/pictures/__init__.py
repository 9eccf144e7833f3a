"""Pictures of messages: decoded, read by a checkpoint's own tower, and placed in texts as tokens of their own."""

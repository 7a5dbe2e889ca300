"""The agent: tools, limits and the loop. Speaks only HTTP to the gateway."""

"""Installation: git hooks and agent settings beside those of others, and the command line."""

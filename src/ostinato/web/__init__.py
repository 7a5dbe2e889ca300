"""What every HTTP server of ours shares: limits of what a connection may hold, and who may be addressed."""

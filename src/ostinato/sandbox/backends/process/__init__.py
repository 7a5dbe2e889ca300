"""Sandboxes that are plain processes, without a boundary: for a user's own repository, and for tests."""

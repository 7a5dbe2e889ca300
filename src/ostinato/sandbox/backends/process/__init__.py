"""Sandboxes that are plain processes without a boundary.

They serve a repository of one's own, and tests as a fake.
"""

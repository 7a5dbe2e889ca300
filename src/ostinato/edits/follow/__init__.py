"""Edits followed: the lines of an edit in the tree of now, and the windows at which they are measured."""

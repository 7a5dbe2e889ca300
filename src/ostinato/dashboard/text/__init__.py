"""Text that people, files and models wrote, prepared for a page: cleaned, cut, compared, split into tokens.

It imports nothing else of this room. `reading` comes in.
"""

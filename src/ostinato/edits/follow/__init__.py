"""Following an edit: its lines in the current tree, and the windows at which they are measured.

`attribution`, `report` and `install` import this folder.
"""

"""Tasks: their form on disk, the generated pebbles, the scripted teacher, grading and simulated developers.

Levels 3 to 5 come in.
"""

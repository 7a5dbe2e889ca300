"""The reading side of a chain: patches are downloaded, applied to a copy and verified.

Engines come in by `Subscriber`, which `ostinato.sync` exports; a publisher also reads what it resumes from.
"""

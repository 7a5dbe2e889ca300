"""The writing side of a chain: tensors are encoded against a base, uploaded, and committed by one manifest.

Trainers come in by `Publisher` and `RankGroup`, which `ostinato.sync` exports.
"""

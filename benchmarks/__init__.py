"""Benchmarks: one file each, beside its peer in the same run. Nothing imports them."""

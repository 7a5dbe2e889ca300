"""The bookkeeping of training: each prompt is trained at most once, and each turn has a known end.

Other rooms come in by `Ledger`, `Phase` and `Stage`, which `ostinato.store` exports.
"""

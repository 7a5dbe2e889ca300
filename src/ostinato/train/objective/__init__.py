"""The policy gradient as pure functions, one thought a file: advantages, k1, corrections.

::

    rewards ─► advantage (group, tree, influence; less weight · k1) ─► loss = -Σ A · weight · log pi / C
    log pi - log mu ─► correction (plain, truncated, icepop, sequence) ─► weight, detached

`policy` comes in for the loss and the correction that `corrections` chooses, `rollout` for the advantages,
which are free of torch. All segments of a session share one advantage, so a chain of summaries is credited as
a whole.
"""

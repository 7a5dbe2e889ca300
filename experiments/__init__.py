"""Studies: what a choice of reward, baseline or correction teaches a policy.

Each study says before it runs what it expects, runs every arm on the same seeds, and prints, plots and judges
what came. The policy is a table of probabilities and the world is a few lines, so a study takes seconds; the
advantages, the loss, the corrections, the effort and the monitors are the package's own.
`python -m experiments` lists them, `python -m experiments NAME` runs one.
"""

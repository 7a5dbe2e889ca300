"""Sessions in other hands: the record in a notebook, data sets for other trainers, logs of other programs.

The command line and `import ostinato` come in. `record` and `tables` are the record as a notebook reads it.
"""

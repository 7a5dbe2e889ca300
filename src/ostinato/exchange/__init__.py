"""Sessions in other hands: the record in a notebook, data sets for other trainers, logs of other programs.

The command line and `import ostinato` come in. `record`, `tables` and `work` are for notebooks,
`conversations` reads recorded tokens as messages, `dataset` writes them for trainers, and `importing` brings
in what the readers below `logs` find.
"""

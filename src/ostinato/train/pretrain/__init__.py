"""Continued pretraining on a corpus: rows, phases of growing length, bits a byte; begun by `run`.

`config` is free of torch. The two trainers are those of the folder above.
"""

"""Lossless coding of one tensor against its predecessor, in the shortest of several forms.

Other parts of `sync` come in by `encode` and `decode`; `choose.py` knows every form, and each form has its
file.
"""

from ostinato.sync.codec.choose import CODECS, FULL, OVERWRITE, RICE, SAME, SYMBOLS, XOR, decode, encode
from ostinato.sync.codec.payload import DamagedPayload

__all__ = [
    "CODECS",
    "FULL",
    "OVERWRITE",
    "RICE",
    "SAME",
    "SYMBOLS",
    "XOR",
    "DamagedPayload",
    "decode",
    "encode",
]

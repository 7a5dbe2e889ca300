"""One tensor against its predecessor, bit for bit, in whichever form is shortest."""

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

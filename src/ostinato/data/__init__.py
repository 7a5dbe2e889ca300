"""Corpora to train on: sources, filters, duplicates, the fence, documents, shards and their card.

The arrows: `build` uses all others, which know only `config`; trainers come in by `corpus`. Free of torch,
and of the room of tokenizers: whoever calls hands one in, as the `Encoder` of `documents`.
"""

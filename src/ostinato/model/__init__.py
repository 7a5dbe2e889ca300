"""The model: tokenizer, renderer, decoder and checkpoints on disk. Level 3 and above come in."""

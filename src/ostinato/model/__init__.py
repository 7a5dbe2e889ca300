"""The model: tokenizer, renderer, decoder and checkpoints on disk. Engine, gateway, train and demo come in."""

"""A prompt becomes tokens with their log-probabilities, routes and versions, and weights are swapped between
two decode steps.

`base.py` holds the protocol. `embedded/` and `vllm/` implement it and never import each other; other rooms
speak to an engine over HTTP, start `python -m ostinato.engine.server`, or use `scripted.py`.
"""

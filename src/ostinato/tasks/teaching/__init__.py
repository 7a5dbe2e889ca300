"""The scripted teacher of pebbles, with good and bad habits. `demo` and tests come in."""

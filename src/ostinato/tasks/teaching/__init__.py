"""The scripted teacher of pebbles, with good and bad habits. Rollout and tests come in."""

"""Models that people use without a run: what one deployed, a checkpoint, or an engine that is there."""

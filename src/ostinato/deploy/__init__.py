"""Who gets which version, and why: statistics, gate, A/B, traffic, lineage."""

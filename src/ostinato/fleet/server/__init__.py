"""Our own server of the E2B protocol: a node runs sandboxes, a front spreads them over nodes."""

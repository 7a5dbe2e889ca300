"""`ostinato session`: what the logs say."""

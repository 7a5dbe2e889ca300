"""Deployment: gate, A/B trial and traffic decide which version serves whom. Levels 4 and 5 come in."""

"""Deployment: gate, A/B trial and traffic decide which version serves whom. `bench`, `loop` and `cli`
come in.
"""

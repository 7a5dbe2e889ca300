"""Sandboxes that are containers of Podman or Docker, whose command lines are equal in what is used."""

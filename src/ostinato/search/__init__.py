"""Search by meaning in a repository: a service beside the gateway, which never sees the repository itself."""

"""What a session was asked for: the kind of a request, and the stratum that its reward is compared within."""

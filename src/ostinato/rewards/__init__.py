"""From what happened in a session to one number with named parts."""

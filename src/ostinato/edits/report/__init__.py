"""The reporter: from the inbox to the journal, and from the journal to the gateway."""

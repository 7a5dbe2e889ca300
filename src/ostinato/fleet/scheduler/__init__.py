"""Which machine a sandbox runs on: decisions as pure, synchronous code, driven by events and a clock."""

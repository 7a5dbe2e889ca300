"""The front door: one HTTP process, no torch. Picks an arm, keeps tokens exact, records before it answers."""

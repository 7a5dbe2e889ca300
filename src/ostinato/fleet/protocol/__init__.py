"""The E2B protocol, as client and server both speak it: Connect calls and archives of directories."""

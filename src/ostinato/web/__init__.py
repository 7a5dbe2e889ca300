"""The parts that all our HTTP servers share: limits of connections and bodies, host names and secrets.

Every server of the house comes in, by the module it needs.
"""

"""The parts that our HTTP servers and clients share: limits of connections and bodies, secrets, patience.

Every server of the house comes in, by the module it needs, and the clients that wait for one.
"""

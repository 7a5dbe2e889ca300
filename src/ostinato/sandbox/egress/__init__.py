"""The only way out of a sandbox: a proxy that allows by policy, counts, and writes down every connection.

    program ──HTTP or CONNECT──► 127.0.0.1 of the sandbox's own network ──► Proxy ──► Rules ──► host
                                                                              └─► Connection records

`policy` decides, `http` and `hello` read what travels, `meter` counts and slows, `visit` passes one
connection on, `proxy` serves them all.
"""

from ostinato.sandbox.egress.policy import Refused, Rules
from ostinato.sandbox.egress.proxy import Proxy
from ostinato.sandbox.egress.visit import Connection

__all__ = ["Connection", "Proxy", "Refused", "Rules"]

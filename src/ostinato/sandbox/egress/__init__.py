"""The only way out of a sandbox: a proxy that allows by policy, counts, and writes down every connection.

    program ──HTTP or CONNECT──► door: 127.0.0.1 of the sandbox's own network ─┐
                                                                               ├──► Proxy ──► Rules ──► host
    program ──TCP to anywhere──► gate: nftables in that network, redirect ─────┤     └─► Connection records
            ──DNS──────────────► gate ──► Names: an address that stands for the name

`policy` decides, `http` and `hello` read what travels, `meter` counts and slows, `visit` passes one
connection on, `direct` one that was turned, `authority` signs for what is inspected, `proxy` serves them all,
`way` is what a backend asks for. Nothing is loaded by this package itself: the zygote, which every sandbox is
forked from, needs `door` and `gate` alone, and is to stay small.
"""

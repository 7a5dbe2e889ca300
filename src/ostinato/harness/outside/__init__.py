"""Other people's harnesses in practice: mini-swe-agent, Claude Code, Codex or opencode in a sandbox.

`config` says which, `starts` how each is started, `relay` runs in the sandbox, `door` stands before the
gateway, `runner` makes an episode of it all. Only `runner` and `config` are used from outside.
"""

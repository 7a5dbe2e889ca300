"""An engine that runs elsewhere, behind our protocol: a vLLM over its completions of token ids.

Nothing outside of `engine` comes in here.
"""

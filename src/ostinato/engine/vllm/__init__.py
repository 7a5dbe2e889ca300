"""A real vLLM server behind the engine protocol, with weights patched in flight.

Other folders come in by `engine.py`. `worker.py` is imported by vLLM's own processes, by name, and with
`patch.py` it needs nothing but torch and safetensors.
"""

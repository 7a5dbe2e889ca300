"""The processes inside a sandbox: the agent, its jobs, and the first process of a virtual machine.

The backends start these modules and copy them into guests; they use `protocol`, `linux`, `files`, `exam`.
"""

"""Any causal language model of transformers, trained by one process or by many with FSDP2.

`opened` comes in: ShardedModel for the weights, `ranks` for the processes.
"""

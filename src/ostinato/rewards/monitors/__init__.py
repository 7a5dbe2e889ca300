"""Monitors of behaviour beside the reward: what a policy that games its reward does more or less often.
`loop` comes in.
"""

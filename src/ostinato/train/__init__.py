"""Training: supervised fine-tuning and the policy-gradient learner, from sessions to weights.

The loop starts them as processes; `rollout` takes the torch-free functions on samples and advantages.
"""

"""From sessions to weights: supervised fine-tuning and the policy-gradient learner."""

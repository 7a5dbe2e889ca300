"""One thread for torch, since several on a few busy cores wait for each other more than they compute."""

import torch

# Several threads on a few busy cores wait for each other more than they compute.
torch.set_num_threads(1)

import torch

# On a few busy cores, several threads would wait for each other more than they compute.
torch.set_num_threads(1)

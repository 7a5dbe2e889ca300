"""The benchmark: held-out tasks measured with one version of the weights. Only the loop comes in."""

"""The benchmark: held-out tasks measured with one version of the weights. Level 5 comes in."""

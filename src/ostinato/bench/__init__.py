"""The benchmark: held-out tasks measured with one version of the weights. Loop and demo come in."""

"""The sampler on a GPU: the same mini-batches as `gids.sampling.neighbor`, bit for bit."""

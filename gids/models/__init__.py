"""Models over mini-batches of blocks, and their training. Needs torch; RGAT also needs torch_geometric."""

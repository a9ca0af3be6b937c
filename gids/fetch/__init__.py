"""From sampled node ids to feature tensors: where each row comes from, in what order, and what it cost."""

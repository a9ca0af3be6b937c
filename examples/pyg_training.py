"""A training script for PyG, as it is without this package. With it, the import that is marked changes.

    python examples/pyg_training.py [--seed N]

Papers of four fields and their authors; the model is GraphSAGE, made heterogeneous by `to_hetero`.
"""

import argparse
import hashlib

import torch
from torch_geometric.data import HeteroData

# with gids: from gids.pyg import NeighborLoader
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.transforms import ToUndirected

N_PAPERS, N_AUTHORS, N_FIELDS, DIM = 1200, 400, 4, 16


def make_data():
    """Authors write mostly in their own field; a paper's features alone tell little of its field."""
    random = torch.Generator().manual_seed(0)
    field = torch.randint(0, N_FIELDS, (N_PAPERS,), generator=random)
    home = torch.randint(0, N_FIELDS, (N_AUTHORS,), generator=random)
    means = torch.randn(N_FIELDS, DIM, generator=random)
    data = HeteroData()
    data["paper"].x = 0.3 * means[field] + torch.randn(N_PAPERS, DIM, generator=random)
    data["paper"].y = field
    data["author"].x = torch.randn(N_AUTHORS, DIM, generator=random)
    # Of eight candidates the first of the author's own field, else the last.
    candidates = torch.randint(0, N_PAPERS, (6000, 8), generator=random)
    author = torch.randint(0, N_AUTHORS, (6000,), generator=random)
    own = (field[candidates] == home[author][:, None]).float()
    own[:, -1] += 0.5
    paper = candidates.gather(1, own.argmax(1, keepdim=True)).view(-1)
    data["author", "writes", "paper"].edge_index = torch.stack([author, paper])
    data["paper"].train_mask = torch.rand(N_PAPERS, generator=random) < 0.5
    return ToUndirected()(data)


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = SAGEConv((-1, -1), 32)
        self.second = SAGEConv((-1, -1), N_FIELDS)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def run(seed=0, epochs=4, sampler=None):
    """Test accuracy, and a digest of the nodes of every mini-batch that was trained on."""
    torch.manual_seed(seed)
    data, digest = make_data(), hashlib.sha256()
    settings = {"num_neighbors": [8, 4], "batch_size": 64, "neighbor_sampler": sampler}
    mask = data["paper"].train_mask
    train = NeighborLoader(data, input_nodes=("paper", mask), shuffle=True, **settings)
    test = NeighborLoader(data, input_nodes=("paper", ~mask), **settings)
    model = to_hetero(Sage(), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch in train:
            digest.update(batch["paper"].n_id.numpy().tobytes() + batch["author"].n_id.numpy().tobytes())
            size = batch["paper"].batch_size
            scores = model(batch.x_dict, batch.edge_index_dict)["paper"][:size]
            loss = torch.nn.functional.cross_entropy(scores, batch["paper"].y[:size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = 0
    with torch.no_grad():
        for batch in test:
            size = batch["paper"].batch_size
            found = model(batch.x_dict, batch.edge_index_dict)["paper"][:size].argmax(1)
            right += int((found == batch["paper"].y[:size]).sum())
    return right / int((~mask).sum()), digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    accuracy, batches = run(parser.parse_args().seed)
    print(f"accuracy {accuracy:.3f}, mini-batches {batches[:16]}")

"""A training script for DGL, as it is without this package. With it, the import that is marked changes.

    python examples/dgl_training.py [--seed N]

Papers of four fields and their authors; the model is GraphSAGE in a `HeteroGraphConv`.
"""

import argparse
import hashlib

import dgl
import numpy as np
import torch

# with gids: from gids.dgl import DataLoader, NeighborSampler
from dgl.dataloading import DataLoader, NeighborSampler

N_PAPERS, N_AUTHORS, N_FIELDS, DIM = 1200, 400, 4, 16
EDGE_TYPES = ("writes", "written_by")


def make_graph():
    """Authors write mostly in their own field; a paper's features alone tell little of its field."""
    random = torch.Generator().manual_seed(0)
    field = torch.randint(0, N_FIELDS, (N_PAPERS,), generator=random)
    home = torch.randint(0, N_FIELDS, (N_AUTHORS,), generator=random)
    means = torch.randn(N_FIELDS, DIM, generator=random)
    # Of eight candidates the first of the author's own field, else the last.
    candidates = torch.randint(0, N_PAPERS, (6000, 8), generator=random)
    author = torch.randint(0, N_AUTHORS, (6000,), generator=random)
    own = (field[candidates] == home[author][:, None]).float()
    own[:, -1] += 0.5
    paper = candidates.gather(1, own.argmax(1, keepdim=True)).view(-1)
    edges = {
        ("author", "writes", "paper"): (author, paper),
        ("paper", "written_by", "author"): (paper, author),
    }
    graph = dgl.heterograph(edges, num_nodes_dict={"paper": N_PAPERS, "author": N_AUTHORS})
    graph.nodes["paper"].data["feat"] = 0.3 * means[field] + torch.randn(N_PAPERS, DIM, generator=random)
    graph.nodes["paper"].data["label"] = field
    graph.nodes["author"].data["feat"] = torch.randn(N_AUTHORS, DIM, generator=random)
    return graph, torch.rand(N_PAPERS, generator=random) < 0.5


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            dgl.nn.HeteroGraphConv({name: dgl.nn.SAGEConv(n_in, n_out, "mean") for name in EDGE_TYPES})
            for n_in, n_out in ((DIM, 32), (32, N_FIELDS))
        )

    def forward(self, blocks, x):
        hidden = {name: rows.relu() for name, rows in self.layers[0](blocks[0], x).items()}
        return self.layers[1](blocks[1], hidden)["paper"]


def run(seed=0, epochs=4):
    """Test accuracy, and a digest of the nodes of every mini-batch that was trained on."""
    torch.manual_seed(seed)
    dgl.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - DGL shuffles with it
    (graph, mask), digest = make_graph(), hashlib.sha256()
    sampler = NeighborSampler([4, 8])
    train, test = (torch.nonzero(each).view(-1) for each in (mask, ~mask))
    loader = DataLoader(graph, {"paper": train}, sampler, batch_size=64, shuffle=True)
    model = Sage()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for input_nodes, output_nodes, blocks in loader:
            for nodes in (*input_nodes.values(), *output_nodes.values()):
                digest.update(nodes.numpy().tobytes())
            scores = model(blocks, blocks[0].srcdata["feat"])
            loss = torch.nn.functional.cross_entropy(scores, blocks[-1].dstnodes["paper"].data["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = 0
    with torch.no_grad():
        for _, _, blocks in DataLoader(graph, {"paper": test}, sampler, batch_size=64):
            found = model(blocks, blocks[0].srcdata["feat"]).argmax(1)
            right += int((found == blocks[-1].dstnodes["paper"].data["label"]).sum())
    return right / len(test), digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    accuracy, batches = run(parser.parse_args().seed)
    print(f"accuracy {accuracy:.3f}, mini-batches {batches[:16]}")

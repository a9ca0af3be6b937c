"""From your graph to a trained model, with the curves of its loss and accuracy.

    python examples/plot_training.py [--nodes N] [--epochs N] [--out training.svg]

Yours would be the arrays of `make_data`: features in a file, edges, labels. Needs PyG (`gids-bam[pyg]`).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import SAGEConv

import bam
import gids
from gids.figures.svg import Line, lines
from gids.figures.svg_file import Panel, svg_file

N_CLASSES, DIM = 4, 32


def make_data(n_nodes, file):
    """Features that say little alone; edges that mostly join nodes of one class, so neighbours say more."""
    random = np.random.default_rng(0)
    labels = random.integers(0, N_CLASSES, n_nodes)
    means = random.standard_normal((N_CLASSES, DIM))
    rows = 0.25 * means[labels] + random.standard_normal((n_nodes, DIM))
    np.save(file, rows.astype(np.float32))
    dst = random.integers(0, n_nodes, 8 * n_nodes)
    candidates = random.integers(0, n_nodes, (len(dst), 4))
    same_class = labels[candidates] == labels[dst][:, None]
    src = candidates[np.arange(len(dst)), same_class.argmax(1)]
    return (src, dst), labels


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([SAGEConv(DIM, 32), SAGEConv(32, N_CLASSES)])

    def forward(self, data):
        hidden = self.layers[0](data.x, data.edge_index).relu()
        return self.layers[1](hidden, data.edge_index)[: data.batch_size]


def train(n_nodes=5000, epochs=5, out="training.svg"):
    """Loss of every mini-batch and test accuracy after every epoch; both are drawn into `out`."""
    torch.manual_seed(0)
    losses, accuracies = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "features.npy"
        edges, labels = make_data(n_nodes, file)
        graph = gids.Graph.from_coo(edges, n_nodes)
        with bam.open_array(file, cache="256KiB") as rows:  # the file may be larger than memory
            common = {"features": {"_N": rows}, "labels": {"_N": labels}}
            sampler = gids.NeighborSampler([8, 4])
            training = gids.DataLoader(
                graph, np.arange(n_nodes // 2), sampler, batch_size=100, shuffle=True, **common
            )
            testing = gids.DataLoader(
                graph, np.arange(n_nodes // 2, n_nodes), sampler, batch_size=500, **common
            )
            model = Sage()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
            with training, testing:
                for epoch in range(epochs):
                    for batch in training:
                        data = batch.to_pyg()
                        loss = torch.nn.functional.cross_entropy(model(data), data.y)
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        losses.append(loss.item())
                    accuracies.append(accuracy(model, testing))
                    print(f"epoch {epoch}: loss {losses[-1]:.3f}, test accuracy {accuracies[-1]:.3f}")
    steps = range(1, len(losses) + 1)
    an_epoch = len(losses) // epochs
    ends = range(an_epoch, len(losses) + 1, an_epoch)
    panels = [
        Panel(
            "Loss",
            ["training loss of each mini-batch"],
            lines([Line("loss", steps, losses)], "mini-batch", "loss", "Loss"),
        ),
        Panel(
            "Accuracy",
            ["on nodes that were not trained on, after each epoch"],
            lines([Line("accuracy", ends, accuracies)], "mini-batch", "accuracy", "Accuracy"),
        ),
    ]
    Path(out).write_text(svg_file(panels))
    return losses, accuracies


def accuracy(model, loader):
    right = seeds = 0
    with torch.no_grad():
        for batch in loader:
            data = batch.to_pyg()
            right += int((model(data).argmax(1) == data.y).sum())
            seeds += data.batch_size
    return right / seeds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", default="training.svg")
    options = parser.parse_args()
    train(options.nodes, options.epochs, options.out)
    print(f"curves: {options.out}")

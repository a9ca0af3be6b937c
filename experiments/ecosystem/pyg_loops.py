"""Training in the three ways of PyG's heterogeneous examples, through our loader and through PyG's own.

    python experiments/ecosystem/pyg_loops.py ACM_FOLDER --json F

`to_hetero`, `HeteroConv` and `HGTConv`: in each the model takes the dictionaries of a mini-batch, loss is on
the seeds' scores, and accuracy that of mini-batches of test papers. PyG's `NeighborLoader` needs pyg-lib or
torch-sparse; without either, ours runs alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch_geometric as pyg
from torch_geometric.nn import HeteroConv, HGTConv, Linear, SAGEConv, to_hetero

from bam.bench.machine import command, commit, describe_machine
from gids.graph.real.acm import load_acm
from gids.pyg import NeighborLoader

SCHEMA = 1
HIDDEN, BATCH = 32, 32
EPOCHS = {"to_hetero": 4, "HeteroConv": 4, "HGTConv": 10}
#: Means of a few seeds differ by less; single ones by up to 0.1.
NOISE = 0.05
HAS_PYGS_SAMPLER = bool(pyg.typing.WITH_PYG_LIB or pyg.typing.WITH_TORCH_SPARSE)


def acm_data(folder: Path) -> Any:
    """ACM as a `HeteroData`: 60 labelled papers of each class to train on, 600 papers to test."""
    dataset = load_acm(folder)
    made = pyg.data.HeteroData()
    for name, count in dataset.graph.schema.num_nodes.items():
        rows = dataset.features[name].take(range(count))
        made[name].x = torch.from_numpy(rows)
    for edge_type, csc in dataset.graph.relations.items():
        destinations = torch.repeat_interleave(torch.from_numpy(csc.degrees()))
        made[tuple(edge_type)].edge_index = torch.stack([torch.tensor(csc.indices).long(), destinations])
    task = dataset.tasks["60"]
    made["paper"].y = torch.tensor(task.labels).long()
    split = task.usual_split()
    made.train, made.test = torch.from_numpy(split.train), torch.from_numpy(split.test[:600])
    return made


class Sage(torch.nn.Module):
    """For `to_hetero`."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), HIDDEN), SAGEConv((-1, -1), n_classes)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Convolutions(torch.nn.Module):
    """A convolution of its own for each edge type, sums of what they give."""

    def __init__(self, metadata: Any, n_classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            HeteroConv({each: SAGEConv((-1, -1), HIDDEN) for each in metadata[1]}, aggr="sum")
            for _ in range(2)
        )
        self.out = Linear(HIDDEN, n_classes)

    def forward(self, x: Any, edge_index: Any) -> Any:
        for layer in self.layers:
            x = {name: rows.relu() for name, rows in layer(x, edge_index).items()}
        return {"paper": self.out(x["paper"])}


class Transformer(torch.nn.Module):
    """The heterogeneous graph transformer."""

    def __init__(self, metadata: Any, n_classes: int) -> None:
        super().__init__()
        self.into = torch.nn.ModuleDict({name: Linear(-1, HIDDEN) for name in metadata[0]})
        self.layers = torch.nn.ModuleList(HGTConv(HIDDEN, HIDDEN, metadata, heads=2) for _ in range(2))
        self.out = Linear(HIDDEN, n_classes)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = {name: self.into[name](rows).relu() for name, rows in x.items()}
        for layer in self.layers:
            x = layer(x, edge_index)
        return {"paper": self.out(x["paper"])}


def model_of(kind: str, data: Any) -> Any:
    n_classes = int(data["paper"].y.max()) + 1
    if kind == "to_hetero":
        return to_hetero(Sage(n_classes), data.metadata())
    return {"HeteroConv": Convolutions, "HGTConv": Transformer}[kind](data.metadata(), n_classes)


def train(kind: str, loader_class: Any, data: Any, seed: int) -> float:
    """Accuracy on the test papers."""
    torch.manual_seed(seed)
    stored = [*data.node_types, *data.edge_types]
    graph = pyg.data.HeteroData({name: dict(data[name]) for name in stored})
    settings = {"num_neighbors": [8, 4], "batch_size": BATCH}
    loader = loader_class(graph, input_nodes=("paper", data.train), shuffle=True, **settings)
    model = model_of(kind, graph)
    with torch.no_grad():  # lazy layers learn their sizes
        first = next(iter(loader))
        model(first.x_dict, first.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(EPOCHS[kind]):
        for batch in loader:
            size = batch["paper"].batch_size
            scores = model(batch.x_dict, batch.edge_index_dict)["paper"][:size]
            loss = torch.nn.functional.cross_entropy(scores, batch["paper"].y[:size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = 0
    model.eval()
    with torch.no_grad():
        for batch in loader_class(graph, input_nodes=("paper", data.test), **settings):
            size = batch["paper"].batch_size
            found = model(batch.x_dict, batch.edge_index_dict)["paper"][:size].argmax(1)
            right += int((found == batch["paper"].y[:size]).sum())
    return right / len(data.test)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train all; the exit status is 1 where accuracies differ by more than noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="ACM as HeCo publishes it")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="F", help="write the result file")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    data = acm_data(given.folder)
    loaders = {"gids": NeighborLoader}
    if HAS_PYGS_SAMPLER:
        loaders["pyg"] = pyg.loader.NeighborLoader
    accuracy = {
        kind: {
            name: [round(train(kind, loader, data, seed), 4) for seed in range(given.seeds)]
            for name, loader in loaders.items()
        }
        for kind in EPOCHS
    }
    differences = {
        kind: round(statistics.mean(found["gids"]) - statistics.mean(found["pyg"]), 4)
        for kind, found in accuracy.items()
        if "pyg" in found
    }
    kept = all(abs(each) < NOISE for each in differences.values())
    result = {
        "schema": SCHEMA,
        "name": "pyg_loops",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(given.folder),
        "torch": torch.__version__,
        "torch_geometric": pyg.__version__,
        "epochs": EPOCHS,
        "test_accuracy": accuracy,
        "mean_of_gids_less_mean_of_pyg": differences,
        "noise": NOISE,
        "kept": kept,
    }
    print(json.dumps(result, indent=1))
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

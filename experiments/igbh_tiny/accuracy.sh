#!/usr/bin/env bash
# Synthetic IGBH-tiny: RGAT through gids and through memory maps on the same mini-batches, and without the graph.
#
#   experiments/igbh_tiny/accuracy.sh OUT_DIR
#
# The data lies below $GIDS_DATA, by default ./data (`experiments/igbh_tiny/run.sh prepare` makes it).
set -euo pipefail
exec "${PYTHON:-python3}" experiments/real/accuracy.py configs/igbh_tiny.toml --seeds "${SEEDS:-3}" \
  --loaders "${LOADERS:-gids,dgl-mmap,dgl-mmap-tuned}" --other-seeds "${OTHER_SEEDS:-1}" --features-only \
  --set model.hidden=64 --set "sampling.fanouts=[5, 3]" --set training.epochs=2 --set training.learning_rate=0.003 \
  --json "$1/accuracy_igbh_tiny.json"

#!/usr/bin/env bash
# Synthetic IGBH: validation accuracy by epoch through gids and through memory maps, on the same mini-batches.
#
#   experiments/igbh/accuracy.sh OUT_DIR
#
# Environment: PYTHON; DEVICE (cuda); GIDS_DATA; SCALE (tiny, or a share of it); SEEDS (3); LOADERS; EPOCHS (8);
# HIDDEN (64); FANOUTS (5, 3); LEARNING_RATE (0.0003: slow enough to see the curve); RUNS. Finished trainings are
# kept in RUNS, and the same command goes on.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
scale=${SCALE:-tiny}
# Sums on a GPU are to have one order, or losses would differ.
export CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONPATH=$PWD
settings=(
  --set "data.synth_scale=\"$scale\"" --set "data.folder=igbh_curves_$scale" --set "data.store=igbh_curves_${scale}_store"
  --set "loader.device=\"${DEVICE:-cuda}\"" --set "loader.cache=20%" --set "model.hidden=${HIDDEN:-64}"
  --set "sampling.fanouts=[${FANOUTS:-5, 3}]" --set "training.epochs=${EPOCHS:-8}"
  --set "training.learning_rate=${LEARNING_RATE:-0.0003}"
)
"$python" -m gids.cli.main prepare --config configs/igbh_tiny.toml "${settings[@]}"
"$python" experiments/real/accuracy.py configs/igbh_tiny.toml --seeds "${SEEDS:-3}" \
  --loaders "${LOADERS:-gids,dgl-mmap-tuned}" --runs "${RUNS:-$1/accuracy-runs}" "${settings[@]}" \
  --json "$1/accuracy_igbh_curves.json"
exec "$python" -m gids.cli.main report "$1/accuracy_igbh_curves.json" --out "$1/accuracy_igbh_curves.html"

#!/usr/bin/env bash
# IGBH-tiny's node counts, cold, 100 steps, memory limited to 1 GiB: gids beside DGL over memory maps.
#
#   experiments/igbh_tiny/run.sh prepare|sample|cold OUT_DIR
#
# The data (about 5 GB, synthetic) lies below $GIDS_DATA, by default ./data.
set -euo pipefail
what=$1
out=$2
python=${PYTHON:-python3}
gids=("$python" -m gids.cli.main)
config=configs/igbh_tiny.toml
case $what in
  prepare) "${gids[@]}" prepare --config $config ;;
  sample) "${gids[@]}" bench sample "${GIDS_DATA:-data}/igbh_tiny_store" --threads "${THREADS:-2}" \
            --json "$out/sample.json" ;;
  cold) "${gids[@]}" bench e2e --config $config --loaders "${LOADERS:-gids,dgl-mmap-tuned,dgl-mmap-128k}" --same-batches \
          --set loader.cache="${CACHE:-464MiB}" --set loader.cpu_buffer=0 \
          --steps "${STEPS:-100}" --memory-limit 1GiB --cold --no-train --json "$out/${NAME:-igbh_tiny_cold}.json" ;;
  *) echo "unknown: $what" >&2; exit 2 ;;
esac

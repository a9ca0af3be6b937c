#!/usr/bin/env bash
# The storage layer against the disk's ceilings, on this machine.
#
#   experiments/storage/run.sh OUT.json [PROBE.cpp] [FILE]
#
# PROBE.cpp is an independent program to compare with (compiled here; its command line is FILE SIZE_GIB, and it
# prints lines "uring rand bs=4096 threads=1 qd=N  RATE IOPS"). FILE is the benchmark file, 4 GiB, made when absent.
set -euo pipefail
out=$1
probe=${2:-}
file=${3:-build/bench-io.bin}
python=${PYTHON:-python3}
arguments=()
if [[ -n $probe ]]; then
  mkdir -p build
  c++ -O2 -std=c++17 -w "$probe" -o build/probe -lpthread
  arguments=(--iobench build/probe)
fi
mkdir -p "$(dirname "$file")"
"$python" -m bam.bench io "$file" --size 4GiB --rounds "${ROUNDS:-3}" --json "$out" "${arguments[@]}"

#!/usr/bin/env bash
# The published comparison of GIDS and memory maps, on a machine with a GPU; parts and calls add up to the whole.
#
#   experiments/igbh/run.sh OUT [PART ...]      parts: build quick paper accuracy (default: build paper)
#
# paper ends before TOTAL_S seconds since the start are over, with the runs made so far in OUT/runs. Put that folder
# where FROM says, and the next call goes on: on this machine, or on another one of its kind. A run is one loader,
# once, in one regime. BAM_COMMIT: of this copy, where it has no history.
#
# Environment: PYTHON; DEVICE (cuda); GIDS_DATA (data: 26 GB for IGBH-small); FROM (runs/paper); TOTAL_S (570);
# REGIMES (small-cold small-steady full); LOADERS (all; separated by commas); REPETITIONS (3); STEPS (100);
# RUN_SECONDS (90: a slower run stops then, and its result says after how many steps); TECHNIQUES (1; 0: none is
# turned off); OWN_MEMORY (0: measured); OFFICIAL (folder of the official data set, with processed/); CONFIG;
# ARGUMENTS (further ones of `gids bench paper`). Of accuracy: see accuracy.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=$(mkdir -p "$1" && cd "$1" && pwd)
shift
PARTS=${*:-build paper}
PYTHON=${PYTHON:-python3}
FROM=${FROM:-runs/paper}
TOTAL_S=${TOTAL_S:-570}
# For writing results when the last run has ended.
ENDING_S=15
export PYTHONUNBUFFERED=1 BAM_KERNEL_CACHE=${BAM_KERNEL_CACHE:-$PWD/build/igbh-kernels}

part() { # name command...
  local name=$1 begin=$SECONDS status=0
  shift
  printf '\n== %s (%d s)\n' "$name" "$SECONDS"
  "$@" 2>&1 | tee "$OUT/$name.log" || status=$?
  printf -- '-- %s: status %d, %d s\n' "$name" "$status" $((SECONDS - begin))
  return "$status"
}

build() {
  "$PYTHON" -m pip install --quiet --no-build-isolation --no-deps -e .
}

paper() {
  local arguments=()
  [ -z "${OFFICIAL:-}" ] || arguments+=(--official "$OFFICIAL")
  [ -z "${LOADERS:-}" ] || arguments+=(--loaders "$LOADERS")
  [ "${TECHNIQUES:-1}" = 1 ] || arguments+=(--no-techniques)
  if [ -d "$FROM" ] && [ ! -d "$OUT/runs" ]; then
    cp -r "$FROM" "$OUT/runs"
  fi
  # shellcheck disable=SC2086
  "$PYTHON" -m gids.cli.main bench paper --config "${CONFIG:-configs/igbh_small.toml}" --device "${DEVICE:-cuda}" \
    --runs "$OUT/runs" --out "$OUT" --steps "${STEPS:-100}" --repetitions "${REPETITIONS:-3}" \
    --regimes ${REGIMES:-small-cold small-steady full} --run-seconds "${RUN_SECONDS:-90}" \
    --budget-s $((TOTAL_S - SECONDS - ENDING_S)) --own-memory "${OWN_MEMORY:-0}" "${arguments[@]}" ${ARGUMENTS:-}
}

quick() {
  "$PYTHON" -m gids.cli.main bench paper --quick --device "${DEVICE:-cuda}" --data "$OUT/quick-data" \
    --runs "$OUT/quick-runs" --out "$OUT/quick"
  rm -r "$OUT/quick-data"
}

failed=0
for name in $PARTS; do
  case $name in
    build | quick | paper) part "$name" "$name" || failed=$? ;;
    accuracy) part accuracy experiments/igbh/accuracy.sh "$OUT" || failed=$? ;;
    *) echo "unknown part $name" >&2; exit 2 ;;
  esac
done
exit "$failed"

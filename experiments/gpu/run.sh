#!/usr/bin/env bash
# Builds, tests, sanitizes and measures the GPU's read path on a machine that has one; results go to a folder.
#
#   experiments/gpu/run.sh OUT [PART ...]       parts: build bench steps sample bulk test sanitize soak
#
# Without parts: all of them, the untimed ones (test, sanitize, soak) side by side at the end. Every part runs, whatever
# became of those before; the script fails at the end if any did, if no GPU is seen, or if fewer tests ran than are
# expected. Environment: PYTHON, BENCH_FILE (BENCH_SIZE, 1 GiB, is written there), DATA (a folder for 5 GB), IOBENCH (a
# program), EXPECTED_TESTS, BAM_GPU_BATCHES, SOAK_SECONDS and SOAK_PROCESSES, PART_TIMEOUT (seconds).
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=$(mkdir -p "$1" && cd "$1" && pwd)
shift
PARTS=${*:-build test bench bulk sanitize}
PYTHON=${PYTHON:-python3}
BENCH_FILE=${BENCH_FILE:-build/bench-gpu.bin}
DATA=${DATA:-build/gpu-data}
# All but those of kvikio, which may not be installed.
EXPECTED_TESTS=${EXPECTED_TESTS:-128}
PART_TIMEOUT=${PART_TIMEOUT:-1200}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 BAM_GPU_REQUIRED=1
export BAM_NATIVE_LIBRARY=$PWD/build/gpu/libbam_native.so
export BAM_KERNEL_CACHE=${BAM_KERNEL_CACHE:-$PWD/build/gpu/kernels}
FAILED=()

part() { # name command...
  local name=$1 begin=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  timeout -k 10 "$PART_TIMEOUT" "$@" 2>&1 | tee "$OUT/$name.log"
  local status=${PIPESTATUS[0]}
  printf -- '-- %s: status %d, %d s\n' "$name" "$status" $((SECONDS - begin))
  [ "$status" -eq 0 ] || FAILED+=("$name")
}

build() {
  cmake -S . -B build/gpu -G Ninja && cmake --build build/gpu
}

run_tests() {
  "$PYTHON" -m pytest -q -p no:cacheprovider -rfE -m gpu tests/gpu --junitxml="$OUT/tests.xml"
}

enough_tests() {
  "$PYTHON" - "$OUT/tests.xml" "$EXPECTED_TESTS" <<'END'
import sys
import xml.etree.ElementTree as xml
suite = xml.parse(sys.argv[1]).getroot().find("testsuite")
ran = int(suite.get("tests")) - int(suite.get("skipped"))
print(f"{ran} tests ran, {sys.argv[2]} are expected")
sys.exit(ran < int(sys.argv[2]))
END
}

bench() {
  mkdir -p "$(dirname "$BENCH_FILE")"
  "$PYTHON" -m bam.bench gpu "$BENCH_FILE" --size "${BENCH_SIZE:-1GiB}" --rounds "${ROUNDS:-3}" --json "$OUT/gpu.json" \
    ${IOBENCH:+--iobench "$IOBENCH"}
}

steps() {
  "$PYTHON" experiments/gpu/steps.py "$DATA/steps" --rounds "${ROUNDS:-3}" --json "$OUT/gpu.json"
}

# Beside DGL's sampler, which must be installed. Its figure joins the others.
sample() {
  [ -e "$DATA/small" ] || "$PYTHON" -m gids synth --scale small --dim 4 --out "$DATA/small" &&
    "$PYTHON" -m gids bench sample "$DATA/small" --device cuda --steps 25 --rounds "${ROUNDS:-3}" \
      --json "$OUT/sample_cuda.json" && "$PYTHON" - "$OUT" <<'END'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
figures = json.loads((out / "sample_cuda.json").read_text())["figures"]
gpu = json.loads((out / "gpu.json").read_text()) if (out / "gpu.json").is_file() else {}
gpu.setdefault("figures", {}).update(figures)
(out / "gpu.json").write_text(json.dumps(gpu, indent=1) + "\n")
END
}

soak() {
  local number status=0 running=()
  for number in $(seq "${SOAK_PROCESSES:-3}"); do
    "$PYTHON" experiments/gpu/soak.py --seconds "${SOAK_SECONDS:-300}" --seed "$number" --json "$OUT/soak.json" &
    running+=($!)
  done
  for number in "${running[@]}"; do wait "$number" || status=1; done
  return $status
}

# Half a minute: 2 GiB are written once, each combination reads 256 MiB. kvikio takes part where it is installed.
bulk() {
  mkdir -p "$(dirname "$BENCH_FILE")"
  "$PYTHON" -m bam.bench bulk "$BENCH_FILE.bulk" --size 2GiB --read 256MiB --rounds 1 --destinations cuda,pinned \
    --numa --json "$OUT/bulk.json"
}

# Small runs: the tools slow kernels down a hundredfold. Only launches of our kernels are looked at; the sampler's have
# no common name, so there torch's are left out.
# initcheck knows nothing of what torch's kernels write, so it leaves the loader out.
sanitize() { # tool
  local check=(compute-sanitizer --tool "$1" --error-exitcode 9 --target-processes all)
  "${check[@]}" --kernel-name kns=bam_ "$PYTHON" experiments/gpu/sanitized.py arrays views groups || return
  if [ "$1" != initcheck ]; then
    "${check[@]}" --kernel-name kns=bam_ "$PYTHON" experiments/gpu/sanitized.py loader &&
      "${check[@]}" --kernel-name kns=gids_ "$PYTHON" experiments/gpu/sanitized.py loader || return
  fi
  "${check[@]}" --kernel-name-exclude kns=at:: "$PYTHON" experiments/gpu/sanitized.py sampler
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$OUT/gpu.txt" || FAILED+=("no GPU is seen")
export -f build run_tests enough_tests bench steps sample bulk sanitize soak part
export PYTHON OUT EXPECTED_TESTS BENCH_FILE DATA PART_TIMEOUT

run_part() {
  case $1 in
    build | bench | steps | sample | bulk | soak) part "$1" bash -c "$1" ;;
    test) part test bash -c run_tests; part count bash -c enough_tests ;;
    sanitize) for tool in memcheck racecheck initcheck synccheck; do part "$tool" bash -c "sanitize $tool"; done ;;
    together) together test soak sanitize ;;
    *) FAILED+=("unknown part $1") ;;
  esac
}

# Nothing of these is timed.
together() {
  local name
  for name in "$@"; do (run_part "$name" && echo "${FAILED[*]}" >"$OUT/failed-$name") & done
  wait
  for name in "$@"; do
    [ -e "$OUT/failed-$name" ] || FAILED+=("$name")
    FAILED+=($(cat "$OUT/failed-$name"))
    rm -f "$OUT/failed-$name"
  done
}

for name in $PARTS; do run_part "$name"; done
printf '\n== failed: %s\n' "${FAILED[*]:-nothing}"
[ ${#FAILED[@]} -eq 0 ]

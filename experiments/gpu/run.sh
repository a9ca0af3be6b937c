#!/usr/bin/env bash
# Builds, tests, sanitizes and measures the GPU's read path on a machine that has one; results go to a folder.
#
#   experiments/gpu/run.sh OUT [PART ...]       parts: build test bench bulk sanitize (default: all)
#
# Every part runs, whatever became of those before; the script fails at the end if any did, if no GPU is seen, or if
# fewer tests ran than are expected. Environment: PYTHON, BENCH_FILE (BENCH_SIZE, 1 GiB, is written there), IOBENCH (a program),
# EXPECTED_TESTS, BAM_GPU_BATCHES, PART_TIMEOUT (seconds).
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=$(mkdir -p "$1" && cd "$1" && pwd)
shift
PARTS=${*:-build test bench bulk sanitize}
PYTHON=${PYTHON:-python3}
BENCH_FILE=${BENCH_FILE:-build/bench-gpu.bin}
EXPECTED_TESTS=${EXPECTED_TESTS:-103}
PART_TIMEOUT=${PART_TIMEOUT:-1200}
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 BAM_GPU_REQUIRED=1
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

# Half a minute: 2 GiB are written once, each combination reads 256 MiB. kvikio takes part where it is installed.
bulk() {
  mkdir -p "$(dirname "$BENCH_FILE")"
  "$PYTHON" -m bam.bench bulk "$BENCH_FILE.bulk" --size 2GiB --read 256MiB --rounds 1 --destinations cuda,pinned \
    --numa --json "$OUT/bulk.json"
}

# Small runs: the tools slow kernels down a hundredfold. Only launches of our kernels are looked at; the sampler's have
# no common name, so there torch's are left out.
sanitize() { # tool
  local check=(compute-sanitizer --tool "$1" --error-exitcode 9 --target-processes all)
  "${check[@]}" --kernel-name kns=bam_ "$PYTHON" experiments/gpu/sanitized.py arrays views groups &&
    "${check[@]}" --kernel-name-exclude kns=at:: "$PYTHON" experiments/gpu/sanitized.py sampler
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$OUT/gpu.txt" || FAILED+=("no GPU is seen")
for name in $PARTS; do
  case $name in
    build) export -f build && part build bash -c build ;;
    test)
      export -f run_tests enough_tests && export PYTHON OUT EXPECTED_TESTS
      part test bash -c run_tests
      part count bash -c enough_tests
      ;;
    bench) export -f bench && export PYTHON OUT BENCH_FILE && part bench bash -c bench ;;
    bulk) export -f bulk && export PYTHON OUT BENCH_FILE && part bulk bash -c bulk ;;
    sanitize)
      export -f sanitize && export PYTHON
      for tool in memcheck racecheck initcheck synccheck; do part "$tool" bash -c "sanitize $tool"; done
      ;;
    *) FAILED+=("unknown part $name") ;;
  esac
done
printf '\n== failed: %s\n' "${FAILED[*]:-nothing}"
[ ${#FAILED[@]} -eq 0 ]

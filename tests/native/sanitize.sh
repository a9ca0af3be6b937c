#!/bin/sh
# Runs what `make sanitize` built: sanitize.sh BUILD_FOLDER [command that turns address randomisation off].
# Passes are those of the two stress programs, and one for each planted race that TSan must report.
build=$1
fixed_addresses=$2
passed=0
failed=0

run() {  # name, command...: shows what it prints, adds its counts
  name=$1
  shift
  log="$build/$name.log"
  echo "== $name"
  "$@" >"$log" 2>&1
  status=$?
  cat "$log"
  counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
  set -- $counts
  passed=$((passed + ${1:-0}))
  failed=$((failed + ${2:-0}))
  if [ "$status" -ne 0 ] && [ "${2:-0}" -eq 0 ]; then  # a report, or a crash
    echo "FAILED $name: exit status $status"
    failed=$((failed + 1))
  fi
}

run asan env ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 "$build/asan/stress"
run tsan env TSAN_OPTIONS=halt_on_error=1 $fixed_addresses "$build/tsan/stress"

for planted in "$build"/tsan/planted_*.o; do
  name=$(basename "${planted%.o}")
  echo "== $name"
  log="$build/$name.log"
  if TSAN_OPTIONS=halt_on_error=1 $fixed_addresses "${planted%.o}" >"$log" 2>&1; then
    echo "FAILED $name: TSan reported nothing"
    failed=$((failed + 1))
  elif ! grep -q "WARNING: ThreadSanitizer: data race" "$log"; then
    cat "$log"
    echo "FAILED $name: it failed, but not of a race"
    failed=$((failed + 1))
  else
    echo "ok     $name: reported as a data race"
    passed=$((passed + 1))
  fi
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

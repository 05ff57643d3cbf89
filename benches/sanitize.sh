#!/bin/sh
# Runs the library's self test under compute-sanitizer: memcheck, then racecheck. Any finding or API error ends it with 1.
#
#     benches/sanitize.sh target/release/tilewright [cases] [device] [seed]
#
# The default is 2 cases, since every launch takes about a hundred times as long. A missing tool or binary ends it with 2.
set -u

if [ $# -lt 1 ] || [ $# -gt 4 ]; then
    echo "usage: $0 BINARY [CASES] [DEVICE] [SEED]" >&2
    exit 2
fi
binary=$1 cases=${2:-2} device=${3:-cuda:0} seed=${4:-1}

if ! command -v compute-sanitizer >/dev/null 2>&1; then
    echo "error: compute-sanitizer: it is not on the PATH; install the CUDA toolkit, or add its bin folder to PATH" >&2
    exit 2
fi
if [ ! -x "$binary" ]; then
    echo "error: $binary: no program that runs; build it with cargo build --release" >&2
    exit 2
fi

status=0
for tool in memcheck racecheck; do
    echo "compute-sanitizer --tool $tool: $cases cases a kernel, seed $seed, on $device"
    case $tool in
        memcheck) options="--leak-check no" ;;
        racecheck) options="--racecheck-report all" ;;
    esac
    # shellcheck disable=SC2086
    if compute-sanitizer --tool "$tool" $options --error-exitcode 99 --print-limit 20 \
        "$binary" selftest --device "$device" --cases "$cases" --seed "$seed"; then
        echo "$tool: clean"
    else
        echo "$tool: found something, or a trial was wrong (exit code $?)" >&2
        status=1
    fi
done
exit $status

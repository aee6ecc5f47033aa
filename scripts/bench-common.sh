# What the benchmark scripts share: where things are, processes on their cores, measures, and a gateway to measure.
# Sourced, not run. Whoever sources it sets `rounds`, `measure_s` and `me` first.
# shellcheck shell=bash

here="$(cd "${BASH_SOURCE[0]%/*}" && pwd)"
root="${here%/*}"
programs="${CARGO_TARGET_DIR:-$root/target}/release"
wavehouse="$programs/wavehouse"

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 1; }

[[ -x $wavehouse && -x $programs/wavehouse-clickhouse ]] ||
    die "the programs are not built: run \`make bench\`, or \`make build\` first"
[[ -e $root/.deps/chdb/libchdb.so ]] || die ".deps/chdb is not there: run \`scripts/deps run\`"

work="$(mktemp -d "$programs/bench.XXXXXX")"
results="$work/results.jsonl"
started=()
finish() {
    [[ -z ${engine:-} ]] || kill -CONT "$engine" 2>/dev/null || true # one that stands still does not end either
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    if [[ -n ${KEEP:-} ]]; then say "results and logs: $work"; else rm -rf "$work"; fi
}
trap finish EXIT
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true # for thousands of connections

pinned() { (($(nproc) > 1)) && command -v taskset >/dev/null; }
on_core() { # on_core N COMMAND...: on that core, if there are several
    local core="$1"
    shift
    if pinned; then exec taskset -c "$core" "$@"; else exec "$@"; fi
}
serve() { # serve LOG COMMAND...: in the background on core 0; its id is in `served`
    local log="$1"
    shift
    ( on_core 0 "$@" ) >"$log" 2>&1 &
    served=$!
    started+=("$served")
}
free_ports() {
    for taken in "$@"; do
        if (: >"/dev/tcp/127.0.0.1/$taken") 2>/dev/null; then die "port $taken is in use"; fi
    done
}
until_true() { # until_true WHAT SECONDS COMMAND...
    local what="$1" patience=$(($2 * 10)) look
    shift 2
    for ((look = 0; look < patience; look++)); do
        "$@" && return
        sleep 0.1
    done
    die "waited in vain for $what"
}
listens() { (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# --- a gateway with its engine ------------------------------------------------------------------------------

port=18480 engine_port=18481
ours="http://127.0.0.1:$port"
metric() { curl -fsS "$ours/metrics" | awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { print int(sum) }'; }

start_gateway() { # with its data in $work/data; sets `gateway` and `engine`
    free_ports $port $engine_port
    (
        export WH_DATA_DIR="$work/data" WH_SERVER_PORT=$port WH_ENGINE_PORT=$engine_port WH_LOG_LEVEL=error
        export WH_ENGINE_LIB="$root/.deps/chdb/libchdb.so"
        # The least that the worker may hold, so that it is soon full while the engine stands still.
        export WH_WORKER_HELD_ROWS=1000000 WH_WORKER_HELD_BYTES=128MiB
        cd "$work" && on_core 0 "$wavehouse" dev
    ) >"$work/gateway.log" 2>&1 &
    gateway=$!
    started+=("$gateway")
    until_true "the gateway; see $work/gateway.log" 60 gateway_ready
    # The engine is the gateway's child. A real one has a machine of its own; here it moves to the generator's core.
    engine="$(pgrep -P "$gateway" wavehouse-click)" || die "the gateway has no engine"
    if pinned; then taskset -acp 1 "$engine" >/dev/null; fi
}
gateway_ready() {
    kill -0 "$gateway" 2>/dev/null || { cat "$work/gateway.log" >&2; die "the gateway ended"; }
    WH_SERVER_PORT=$port "$wavehouse" health >/dev/null 2>&1 && curl -fsS "$ours/readyz" >/dev/null 2>&1
}

# The HTTP face by itself: the engine stands still, and so does the worker as soon as it holds all that it may.
hold_engine() {
    kill -STOP "$engine"
    ( on_core 1 "$wavehouse" bench ingest --url "$ours" --no-create --connections 4 --rows-per-request 1000 \
        --warmup 0 --seconds "${fill_s:-3}" ) >/dev/null
    sleep 1
}
release_engine() {
    kill -CONT "$engine"
    until_true "the rows held back" 600 drained
}
drained() { [[ $(metric wavehouse_queue_unwritten_rows) == 0 ]]; }

# --- measures -----------------------------------------------------------------------------------------------

load() { # load LABEL PID ADDRESS OPTIONS...
    local label="$1" pid="$2" address="$3"
    shift 3
    ( on_core 1 "$wavehouse" bench ingest --json --label "$label" --pid "$pid" --url "$address" \
        --seconds "$measure_s" "$@" ) >>"$results"
}
stream() { # stream LABEL PID ADDRESS OPTIONS...
    local label="$1" pid="$2" address="$3"
    shift 3
    ( on_core 1 "$wavehouse" bench stream --json --label "$label" --pid "$pid" --url "$address" \
        --seconds "$measure_s" "$@" ) >>"$results" || say "$label was not measured"
}
sync_rows() { # sync_rows OPTIONS...
    ( on_core 0 "$wavehouse" bench fsync --json --dir "$work" --seconds "$measure_s" "$@" ) >>"$results"
}
figure() { # figure LABEL NAME VALUE: one more result, measured here
    printf '{"label":"%s","more":{"%s":%s}}\n' "$@" >>"$results"
}
machine() {
    printf '%s, %s cores, %s, load %s before; one row = 256 bytes of JSON with 9 fields\n\n' "$(uname -sm)" "$(nproc)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$load_before"
}
load_before="$(cut -d' ' -f1 /proc/loadavg)"

# Start, memory at rest, size, and recovery of a gateway without an engine of its own. Sourced by scripts/bench-peers.
# shellcheck shell=bash

ops_port=18487 nats_port=18488 nats_http=18489
free_ports $ops_port $nats_port $nats_http
key="operations"

# The engine of the gateway that has been measured is the ClickHouse of these.
ops_env=(
    WH_SERVER_PORT=$ops_port WH_SERVER_LISTEN=127.0.0.1 WH_LOG_LEVEL=error WH_AUTH_OPERATOR_KEY=$key
    WH_CH_URL="http://127.0.0.1:$engine_port" WH_CH_USERNAME=default WH_DATA_DIR="$work/ops"
    WH_CH_PASSWORD="$(<"$work/data/clickhouse.password")"
)
timed() { # timed LABEL OPTIONS... -- COMMAND...
    local label="$1"
    shift
    ( on_core 0 env "${ops_env[@]}" "$wavehouse" bench start --json --label "$label" \
        --header "X-Operator-Key: $key" "$@" ) >>"$results" 2>>"$work/ops.log" || say "$label was not measured; see $work/ops.log"
}
stripped_mb() { strip -o "$work/stripped" "$1" && stat -c %s "$work/stripped" | awk '{ print $1 / 1e6 }'; }

for ((round = 1; round <= rounds; round++)); do
    rm -rf "$work/ops" "$work/nats"
    timed start --url "http://127.0.0.1:$ops_port/readyz" --idle 5 -- "$wavehouse"
    if [[ -x $nats_bin ]]; then
        timed nats-start --url "http://127.0.0.1:$nats_http/healthz" --idle 5 -- "$nats_bin" \
            -a 127.0.0.1 -p $nats_port -m $nats_http -js -sd "$work/nats"
    fi
done
figure engine rss_mb_at_rest "$(awk '/^VmRSS/ { print $2 / 1000 }' "/proc/$engine/status")"
figure size mb "$(stripped_mb "$wavehouse")"
[[ ! -x $nats_bin ]] || figure nats-size mb "$(stripped_mb "$nats_bin")"

# 1 GiB of rows that ClickHouse has not got, since it stands still; then the process dies.
say "recovery"
rm -rf "$work/ops"
kill -STOP "$gateway" # it would want the engine as well
( on_core 0 env "${ops_env[@]}" WH_WORKER_HELD_ROWS=1000000 "$wavehouse" ) >"$work/ops.log" 2>&1 &
ops=$!
started+=("$ops")
until_true "the second gateway" 30 curl -fs -o "$work/ready" "http://127.0.0.1:$ops_port/readyz"
kill -STOP "$engine"
queue_mb() { du -sm "$work/ops/queue" | cut -f1; }
until_full() {
    ( on_core 1 "$wavehouse" bench ingest --header "X-Operator-Key: $key" --url "http://127.0.0.1:$ops_port" --no-create --connections 4 \
        --rows-per-request 1000 --warmup 0 --seconds 1 ) >/dev/null
    (($(queue_mb) >= 1024))
}
until_true "1 GiB" 4 until_full
kill -KILL "$ops"
wait "$ops" 2>/dev/null || true
for ((round = 1; round <= 3; round++)); do
    begun="$(date +%s%N)"
    find "$work/ops/queue" -type f -exec dd if={} of=/dev/null bs=1M status=none \;
    figure recovery-read start_ms $((($(date +%s%N) - begun) / 1000000))
done
figure recovery-log mb "$(queue_mb)"
kill -CONT "$engine"
timed recovery --url "http://127.0.0.1:$ops_port/v1/ingest?table=bench_events" --post-row -- "$wavehouse"
kill -CONT "$gateway"

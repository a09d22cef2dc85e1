#!/usr/bin/env bash
# Looks at an installation on this machine and says what is missing. Changes nothing; exit code 1 if something is wrong.
#
# usage: verify.sh [server|agent|client]...      without words: whatever is installed here
set -u

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

private() { # only its owner may read it
    local mode
    mode=$(stat -c %a "$1" 2>/dev/null) || { bad "$1 exists" "see docs/admin-guide.md"; return; }
    case $mode in
        ?00) good "$1 is private" ;;
        *) bad "$1 is private (mode $mode)" "chmod go= $1" ;;
    esac
}

verify_server() {
    echo "== server"
    check "rms-server is on the path" "install -m 755 target/release/rms-server /usr/bin/" command -v rms-server
    local config=/etc/limber/rms-server.toml dir=/var/lib/limber/server
    check "$config is right" "rms-server check-config $config says what is wrong" rms-server check-config "$config"
    private "$dir"
    check "the unit is enabled" "systemctl enable --now rms-server" systemctl is-enabled rms-server
    check "the unit runs" "journalctl -u rms-server -n 50" systemctl is-active rms-server
    local port
    port=$(sed -n 's/^ *listen *= *".*:\([0-9]*\)".*/\1/p' "$config" 2>/dev/null)
    port=${port:-7117}
    check "UDP port $port is open here" "is the unit running? another program on the port: ss -lunp" \
        sh -c "ss -Hlun 'sport = :$port' | grep -q ."
    local name
    for name in rmem_max wmem_max; do
        local size
        size=$(cat "/proc/sys/net/core/$name" 2>/dev/null || echo 0)
        if [ "$size" -ge 7500000 ]; then
            good "net.core.$name is $size"
        else
            bad "net.core.$name is only $size" "install deploy/60-limber.conf in /etc/sysctl.d and run sysctl --system"
        fi
    done
    local free
    free=$(df --output=avail -m "$dir" 2>/dev/null | tail -n 1)
    if [ "${free:-0}" -ge 1024 ]; then good "$dir has $free MiB free"; else bad "$dir has ${free:-no} MiB free" "make space"; fi
}

verify_agent() {
    echo "== agent"
    check "node-agent is on the path" "install -m 755 target/release/node-agent /usr/bin/" command -v node-agent
    private /var/lib/limber/agent/credentials/key.pem
    check "the unit is enabled" "systemctl enable --now node-agent" systemctl is-enabled node-agent
    check "the unit runs" "journalctl -u node-agent -n 50" systemctl is-active node-agent
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
    elif [ -d /sys/fs/cgroup/cpuset ]; then
        note "control groups: version 1; they are used, too"
    else
        note "no control groups: process trees are tracked without them"
    fi
}

verify_client() {
    echo "== client"
    check "rms is on the path" "install -m 755 target/release/rms /usr/bin/" command -v rms
    check "the server answers" "rms nodes says why it does not" rms --json nodes
    local unusable
    unusable=$(rms --json nodes 2>/dev/null | tr '{' '\n' | grep -c '"usable":false')
    if [ "$unusable" = 0 ]; then good "every node is usable"; else note "$unusable nodes are not usable: rms nodes"; fi
}

roles=$*
if [ -z "$roles" ]; then
    command -v rms-server >/dev/null && roles="$roles server"
    command -v node-agent >/dev/null && roles="$roles agent"
    command -v rms >/dev/null && roles="$roles client"
fi
[ -n "$roles" ] || { echo "nothing of Limber is installed here: see docs/admin-guide.md" >&2; exit 1; }
for role in $roles; do
    case $role in
        server | agent | client) "verify_$role" ;;
        *) echo "usage: verify.sh [server|agent|client]..." >&2; exit 2 ;;
    esac
done
[ "$faults" -eq 0 ] && echo "all is well" || { echo "$faults things are wrong"; exit 1; }

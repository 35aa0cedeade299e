#!/bin/sh
# Installs what tests/devcluster needs from Debian's packages, and starts no system service. Does nothing if all of it
# is installed already. As root: tests/devcluster/install.sh
set -eu
packages="slurm-wlm slurmdbd mariadb-server munge"
policy=/usr/sbin/policy-rc.d
marker="# of tests/devcluster/install.sh"

installed() {
    # shellcheck disable=SC2086  # one argument per package
    [ "$(dpkg-query -W -f='${Status}\n' $packages 2>/dev/null | grep -c '^install ok installed$')" = 4 ]
}

if installed; then exit 0; fi
if [ "$(id -u)" != 0 ]; then echo "install.sh: run this as root, it installs $packages" >&2; exit 1; fi

# Debian asks this file before it starts a service. A machine's own file is kept, and decides. A file that an
# interrupted run of this script left behind is replaced, and removed at the end.
if [ ! -e "$policy" ] || grep -qxF "$marker" "$policy"; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\n%s\nexit 101\n' "$marker" > "$policy"
    chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $packages
installed

#!/usr/bin/env bash
# docker.io 20.10.24 (Debian 12): a dockerd that is started with `--bridge=none`, beside another one
# on the same machine, removes the interface docker0 of that other one.
#
# Seen: the first daemon notices nothing and still lists its network `bridge`, but the interface is
# gone; what it starts on that network fails until the first daemon itself is started again. A
# daemon without a network, such as one for builds or tests, takes it from all others.
#
# Needs root, debootstrap and a mirror of Debian; takes a minute. Works in a network namespace.
set -euo pipefail

if [ $# = 0 ]; then
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  debootstrap --variant=minbase --include=docker.io bookworm "$work/root" \
    "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
  unshare --net --mount "$0" "$work"
  exit
fi

work=$1
root=$work/root
finish() {
  for file in "$root"/run/one.pid "$root"/run/two.pid; do
    [ ! -f "$file" ] || kill "$(cat "$file")" || true
  done
  wait
}
trap finish EXIT
version=$(chroot "$root" dockerd --version)
echo "$version"
[[ $version == *" 20.10.24"* ]]
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
ip link set lo up

# Starts a daemon of this name and waits until it answers.
start() {
  chroot "$root" dockerd --host "unix:///run/$1.sock" --data-root "/var/lib/$1" \
    --exec-root "/run/$1" --pidfile "/run/$1.pid" --iptables=false --storage-driver vfs \
    "${@:2}" >"$work/$1.log" 2>&1 </dev/null &
  until chroot "$root" docker --host "unix:///run/$1.sock" version >/dev/null 2>&1; do
    kill -0 $! && sleep 0.2
  done
}

start one
ip -brief link show docker0
start two --bridge=none
networks=$(chroot "$root" docker --host unix:///run/one.sock network ls --format '{{.Name}}')
echo "the first daemon's networks: ${networks//$'\n'/ }"
[[ $networks == *bridge* ]]
if ip link show docker0 2>/dev/null; then
  echo "docker0 is still there"
  exit 1
fi
echo "docker0 is gone"

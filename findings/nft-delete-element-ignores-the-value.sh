#!/usr/bin/env bash
# nftables 1.0.6 (Debian 12): `nft delete element` of a map takes a key with a value, and compares
# the key alone.
#
# Seen: the element "172.17.0.2 . 7777 : 192.0.2.1 . 20000" is deleted by a command that names the
# value 198.51.100.9 . 31000, without an error. Adding the key with another value, on the other
# hand, is refused. Two owners of one map, such as an address translation whose container addresses
# are used again, can delete each other's elements though each names its own value.
#
# Needs root, debootstrap and a mirror of Debian; takes a minute. Works in a network namespace.
set -euo pipefail

if [ $# = 0 ]; then
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  debootstrap --variant=minbase --include=nftables bookworm "$work/root" \
    "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
  unshare --net "$0" "$work/root"
  exit
fi

nft() { chroot "$root" nft "$@"; }

root=$1
nft --version
[[ $(nft --version) == *" v1.0.6 "* ]]
uname -r
nft add table ip example
nft add map ip example sources \
  '{ type ipv4_addr . inet_service : ipv4_addr . inet_service ; }'
nft add element ip example sources '{ 172.17.0.2 . 7777 : 192.0.2.1 . 20000 }'

if nft add element ip example sources '{ 172.17.0.2 . 7777 : 198.51.100.9 . 31000 }'; then
  echo 'the key got a second value'
  exit 1
fi
nft list map ip example sources | grep '192.0.2.1 . 20000'

nft delete element ip example sources '{ 172.17.0.2 . 7777 : 198.51.100.9 . 31000 }'
if nft list map ip example sources | grep elements; then
  echo 'the value was compared'
  exit 1
fi
echo 'deleted by the name of another value'

#!/usr/bin/env bash
# crossfire-server 1.75.0-5+b2 (Debian 12) cannot load its Python plugin with Debian 12's own Python
# 3.11: cfpython.so needs PyUnicode_EncodeRawUnicodeEscape, which Python 3.11 has removed. The
# server logs one line, goes on without the scripts of its maps, says "Initialization complete", and
# ends with 0 on SIGINT.
#
# Seen: "Error trying to load …/cfpython.so: …: undefined symbol: PyUnicode_EncodeRawUnicodeEscape".
# Who hosts the game has a server that is ready and looks healthy, in which scripts do nothing.
#
# Needs root, debootstrap and a mirror of Debian; takes a minute.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
debootstrap --variant=minbase --include=crossfire-server bookworm "$root" \
  "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
[ "$(chroot "$root" dpkg-query -W crossfire-server)" = "crossfire-server	1.75.0-5+b2" ]
chroot "$root" dpkg-query -W libpython3.11 python3

output=$work/server.log
code=0
chroot --userspec=5:60 "$root" /usr/bin/env HOME=/tmp /usr/sbin/crossfire-server -p 13399 \
  >"$output" 2>&1 </dev/null &
server=$!
until grep -q 'Initialization complete' "$output"; do kill -0 "$server" && sleep 0.2; done
kill -INT "$server"
wait "$server" || code=$?
grep -F 'cfpython.so: undefined symbol: PyUnicode_EncodeRawUnicodeEscape' "$output"
echo "exit code $code"
[ "$code" = 0 ]

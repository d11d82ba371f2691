#!/usr/bin/env bash
# openttd 13.0-2 with openttd-opengfx 7.1-1 (Debian 12): a dedicated server that gets SIGTERM ends
# with 0 and saves nothing, unless the setting `autosave_on_exit` of the section `[gui]` is true.
# The server has no user interface, and none of its options or lines of output mentions the setting.
#
# Seen: without it, exit code 0 and no file in save/; with it, exit code 0 and
# save/autosave/exit.sav. Who hosts the game loses the map at each stop, and the exit code hides it.
#
# Needs root, debootstrap and a mirror of Debian; takes a minute.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
debootstrap --variant=minbase --include=openttd,openttd-opengfx bookworm "$root" \
  "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
[ "$(chroot "$root" dpkg-query -W openttd)" = "openttd	13.0-2" ]

# Runs a server with these settings until its map is there, and stops it; prints its exit code and
# the saves.
stopped() {
  local home=$root/tmp/$1 server output=$work/$1.log code=0
  install -d -o 5 -g 60 "$home"
  printf '%s\n' "${@:2}" >"$home/openttd.cfg"
  chown 5:60 "$home/openttd.cfg"
  chroot --userspec=5:60 "$root" /usr/bin/env HOME="/tmp/$1" \
    /usr/games/openttd -D 127.0.0.1:13979 -c "/tmp/$1/openttd.cfg" >"$output" 2>&1 </dev/null &
  server=$!
  until grep -q 'Map generated' "$output"; do kill -0 "$server" && sleep 0.2; done
  kill -TERM "$server"
  wait "$server" || code=$?
  (cd "$home" && echo "$code" && find . -name '*.sav')
}

without=$(stopped without '[misc]')
with=$(stopped with '[gui]' 'autosave_on_exit = true')
printf 'without autosave_on_exit: %s\nwith it: %s\n' "${without//$'\n'/ }" "${with//$'\n'/ }"
[ "$without" = 0 ]
[ "$with" = $'0\n./save/autosave/exit.sav' ]

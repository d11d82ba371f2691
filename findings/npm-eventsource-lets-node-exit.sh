#!/usr/bin/env bash
# eventsource 5.0.0 to 5.1.5 from npm (seen with these on Node 20.20.2) lets Node exit while it waits
# to connect again, since its timer keeps no program running (`unref`). 4.1.1 waits and connects.
#
# Seen: a program that only follows a stream ends with status 0 when its server ends the stream, as
# each restart of a server does, and misses all later events. It has to keep Node running itself,
# such as with a timer of its own or a server.
#
# Needs Node and npm's registry; takes some seconds.
set -euo pipefail

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
cat >server.js <<'JS'
const server = require("http").createServer((request, response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.end("retry: 200\ndata: x\n\n");
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
JS
cat >client.js <<'JS'
const { EventSource } = require("eventsource");
let seen = 0;
process.on("exit", () => console.log(seen));
const source = new EventSource(`http://127.0.0.1:${process.argv[2]}/`);
source.onmessage = () => {
  seen += 1;
  if (seen === 3) source.close();
};
if (process.argv[3] === "timer") setTimeout(() => process.exit(), 10_000);
JS

node --version
node server.js >port &
server=$!
until [ -s port ]; do sleep 0.1; done
expect() {
  npm install --silent --no-audit --no-fund "eventsource@$1"
  seen=$(timeout 60 node client.js "$(cat port)" "${@:3}")
  echo "eventsource $1 ${*:3}: events before the program has ended: $seen"
  [ "$seen" = "$2" ]
}
expect 4.1.1 3
expect 5.0.0 1
expect 5.1.5 1
expect 5.1.5 3 timer

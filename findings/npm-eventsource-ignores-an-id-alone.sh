#!/usr/bin/env bash
# eventsource 3.0.0 to 5.0.0 from npm (seen with 3.0.7, 4.1.1 and 5.0.0 on Node 20.20.2) ignores the
# id of a block of server-sent events that has no data: it connects again with the id before it, or
# with none. 2.0.2 and 5.1.5 keep the id, as the HTML standard says (9.2.6: the last event ID is set
# before a block without data is dropped).
#
# Seen: after "id: 5" alone, the next request has no Last-Event-ID; after "id: 6" with data and then
# "id: 7" alone, it has 6. A server that sends an id on a quiet stream, so that its reader does not
# fall behind what is still stored, is not understood by these versions: they ask for old events
# again, which may be gone. An id that must be kept needs an event with data.
#
# Needs Node and npm's registry; takes some seconds.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >client.js <<'JS'
const http = require("http");
const found = require("eventsource");
const EventSource = found.EventSource || found;
const blocks = ["retry: 10\nid: 5\n\n", "id: 6\ndata: x\n\n", "id: 7\n\n"];
const seen = [];
let source;
const server = http.createServer((request, response) => {
  seen.push(request.headers["last-event-id"] || "none");
  if (seen.length > blocks.length) {
    source.close();
    server.close();
    response.destroy();
    console.log(seen.join(" "));
    return;
  }
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.end(blocks[seen.length - 1]);
});
server.listen(0, "127.0.0.1", () => {
  source = new EventSource(`http://127.0.0.1:${server.address().port}/`);
});
JS

node --version
expect() {
  npm install --silent --no-audit --no-fund "eventsource@$1"
  ids=$(timeout 60 node client.js)
  echo "eventsource $1: Last-Event-ID of four requests: $ids"
  [ "$ids" = "$2" ]
}
expect 2.0.2 'none 5 6 7'
expect 3.0.7 'none none 6 6'
expect 4.1.1 'none none 6 6'
expect 5.0.0 'none none 6 6'
expect 5.1.5 'none 5 6 7'

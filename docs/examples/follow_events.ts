// Follow the sessions of an account with fetch, which, unlike EventSource, can send a token.
//
//     TILTYARD_URL=http://127.0.0.1:8080 TILTYARD_TOKEN=ty_… node follow_events.ts
//
// Node 22.18 or later runs it as it is; for others, remove the types.

type Event = {
  id: string;
  type: string;
  object: string;
  data: { host: string; ports: Record<string, number>; reason: string };
};

const url: string = process.env.TILTYARD_URL ?? "";
const token: string = process.env.TILTYARD_TOKEN ?? "";
const pause: number = 2000; // Milliseconds before it connects again
const retried: number[] = [429, 500, 502, 503, 504];

async function* follow(after: string): AsyncGenerator<Event> {
  const query = new URLSearchParams({ kind: "session.*" });
  if (after) query.set("after", after);
  const headers = { Authorization: `Bearer ${token}`, Accept: "application/x-ndjson" };
  const response = await fetch(`${url}/event?${query}`, { headers });
  if (response.status === 410) {
    const { resume } = (await response.json()) as { resume: string };
    yield { id: resume, type: "stream.gap", object: "", data: { host: "", ports: {}, reason: "" } };
    return;
  }
  if (retried.includes(response.status)) return;
  if (!response.ok || !response.body) throw new Error(await response.text());
  let text = "";
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (text + part).split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line);
  }
}

function handle(event: Event): void {
  const { object, data } = event;
  if (event.type === "session.ready") {
    console.log(`${object} is ready on ${data.host}`, data.ports);
  } else if (event.type === "session.ended") {
    console.log(`${object} has ended: ${data.reason}`);
  } else if (event.type === "stream.gap") {
    console.error("events are missing: read all sessions again");
  }
}

let after: string = ""; // Keep it in a file or a database to go on after a restart
for (;;) {
  try {
    for await (const event of follow(after)) {
      handle(event);
      after = event.id;
    }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // Not fetch, which could not connect
    console.error(`cannot follow: ${error.message}`);
  }
  await new Promise((done) => setTimeout(done, pause));
}

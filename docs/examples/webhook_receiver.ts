// Receive the events of a webhook, and verify that they are from Tiltyard.
//
//     export WEBHOOK_SECRET=whsec_…
//     npx tsx webhook_receiver.ts 8000
//
// It uses no package. With npm's `standardwebhooks`, the part from `key` to `isGenuine` is
// `new Webhook(secret).verify(body, headers)`.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from((process.env.WEBHOOK_SECRET ?? "").replace("whsec_", ""), "base64");
const tolerance = 300; // Seconds by which the clocks of both sides may differ
const maxBody = 20_000; // Bytes; Tiltyard sends no longer message
const seen = new Set(); // Ids; in a database, if they have to survive a restart

const server = createServer(async (request, response) => {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > maxBody) {
      response.writeHead(413, { Connection: "close" }).end();
      return;
    }
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  const id = String(request.headers["webhook-id"]);
  const timestamp = String(request.headers["webhook-timestamp"]);
  const digest = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  const isRecent = Math.abs(Date.now() / 1000 - Number(timestamp)) <= tolerance;
  // While a secret is rotated, there is a signature for each, with a space in between.
  const signatures = String(request.headers["webhook-signature"]).split(" ");
  const isSigned = signatures.some((signature) => {
    const [version, text] = signature.split(",");
    const found = Buffer.from(text ?? "", "base64");
    return version === "v1" && found.length === digest.length && timingSafeEqual(found, digest);
  });
  if (!isRecent || !isSigned) {
    response.writeHead(401).end();
    return;
  }
  // A message can arrive more than once, always with the same id.
  if (!seen.has(id)) {
    const message = JSON.parse(body.toString());
    console.log(message.type, message.data.object ?? "");
    seen.add(id);
  }
  response.writeHead(204).end();
});

server.listen(Number(process.argv[2]), "127.0.0.1", () => {
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  console.log(`receiving on port ${port}`);
});

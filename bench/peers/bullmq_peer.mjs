// BullMQ on Redis: a queue for each subscription, one job of it at a time.
//
// fill REDIS_PORT SUBSCRIPTIONS JOBS SINK_PORT, work REDIS_PORT SUBSCRIPTIONS SLOTS.
// The slots limit how many POSTs run at once, as ours do: without them it would be one
// for each subscription. Order within a group of one queue is a paid feature.
import IORedis from "ioredis";
import { Queue, Worker } from "bullmq";
import { Pool } from "undici";

const [mode, redisPort, subscriptions, ...rest] = process.argv.slice(2);
const connection = new IORedis(Number(redisPort), "127.0.0.1", { maxRetriesPerRequest: null });
const body = "x".repeat(700);

async function fill(jobs, port) {
  for (let subscription = 0; subscription < subscriptions; subscription++) {
    const queue = new Queue(`s${subscription}`, { connection });
    const batch = [];
    for (let update = subscription; update < jobs; update += Number(subscriptions)) {
      batch.push({
        name: "deliver",
        data: { port, subscription, update, body },
        opts: { removeOnComplete: true, attempts: 8, backoff: { type: "exponential", delay: 1000 } },
      });
    }
    await queue.addBulk(batch);
  }
  await connection.quit();
}

let pool = null;
let free = 0;
const waiting = [];

async function slot() {
  if (free > 0) free--;
  else await new Promise((resolve) => waiting.push(resolve));
}

function release() {
  const next = waiting.shift();
  if (next) next();
  else free++;
}

async function deliver(job) {
  const { port, subscription, update, body } = job.data;
  pool ??= new Pool(`http://127.0.0.1:${port}`, { connections: Number(rest[0]) });
  await slot();
  try {
    const answer = await pool.request({
      path: `/s/${subscription}`,
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-telegrammer-delivery-id": `1-${subscription}-${update}`,
      },
      body,
    });
    await answer.body.dump();
    if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
  } finally {
    release();
  }
}

function work(slots) {
  free = slots;
  for (let subscription = 0; subscription < subscriptions; subscription++) {
    const worker = new Worker(`s${subscription}`, deliver, { connection, concurrency: 1 });
    worker.on("completed", (job) => console.log(`delivered ${job.id}`));
    worker.on("error", (error) => console.error(error));
  }
}

if (mode === "fill") await fill(Number(rest[0]), Number(rest[1]));
else work(Number(rest[0]));

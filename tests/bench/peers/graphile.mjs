// graphile-worker with the settings its own page on performance names: a local queue of 500 and completion in batches.
import pg from "pg";
import { makeWorkerUtils, runOnce } from "graphile-worker";

const [url, items] = [process.argv[2], Number(process.argv[3])];
const utils = await makeWorkerUtils({ connectionString: url });
await utils.migrate();
await utils.addJobs(Array.from({ length: items }, (_, i) => ({ identifier: "points", payload: { id: i + 1 } })));
await utils.release();
const points = async ({ id }, { withPgClient }) => {
  await withPgClient((client) =>
    client.query({ name: "points", text: "UPDATE accounts SET points = points + 10 WHERE id = $1", values: [id] }));
};
const pool = new pg.Pool({ connectionString: url, max: 10 });
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
const preset = {
  worker: { concurrentJobs: 4, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
};
const began = process.hrtime.bigint();
await runOnce({ preset, pgPool: pool, noHandleSignals: true, taskList: { points } });
console.log(Number(process.hrtime.bigint() - began) / 1e9);
process.exit(0);

// pg-boss: four workers, each fetches 100 jobs, does their work and completes them in one transaction.
import pg from "pg";
import * as module from "pg-boss";

const PgBoss = module.PgBoss ?? module.default;
const [url, items] = [process.argv[2], Number(process.argv[3])];
const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, max: 4 });
await boss.start();
await boss.createQueue("points");
const jobs = Array.from({ length: items }, (_, i) => ({ name: "points", data: { id: i + 1 } }));
// From version 11 on the queue is named apart.
await (module.PgBoss ? boss.insert("points", jobs.map(({ data }) => ({ data }))) : boss.insert(jobs));
const pool = new pg.Pool({ connectionString: url, max: 4 });
await Promise.all(Array.from({ length: 4 }, () => pool.query("SELECT 1")));

async function work() {
  const client = await pool.connect();
  const db = { executeSql: (text, values) => client.query(text, values) };
  for (;;) {
    await client.query("BEGIN");
    const batch = await boss.fetch("points", { batchSize: 100, db });
    if (!batch || batch.length === 0) {
      await client.query("COMMIT");
      break;
    }
    const ids = batch.map((job) => job.data.id);
    await client.query("UPDATE accounts SET points = points + 10 WHERE id = ANY($1)", [ids]);
    await boss.complete("points", batch.map((job) => job.id), null, { db });
    await client.query("COMMIT");
  }
  client.release();
}

const began = process.hrtime.bigint();
await Promise.all(Array.from({ length: 4 }, work));
console.log(Number(process.hrtime.bigint() - began) / 1e9);
await pool.end();
await boss.stop({ graceful: false });
process.exit(0);

// Drains no-op jobs with Graphile Worker, set up as its own performance test is: jobs are fetched and
// completed in batches.
const { run, runMigrations, Logger } = require("graphile-worker");
const { Pool } = require("pg");

const [url, count, payload, size] = process.argv.slice(2);
const jobs = Number(count);

async function main() {
  const pool = new Pool({ connectionString: url });
  const logger = new Logger(() => () => {});
  await runMigrations({ connectionString: url, logger });
  await pool.query(
    "select graphile_worker.add_jobs(array(select row('noop', $1::json, null, null, 3, null, 0, null)" +
      "::graphile_worker.job_spec from generate_series(1, $2)))",
    [payload, jobs],
  );
  await pool.query("vacuum analyze");
  await pool.end();
  let done = 0;
  let finish;
  const allDone = new Promise((resolve) => (finish = resolve));
  const started = process.hrtime.bigint();
  const runner = await run({
    connectionString: url,
    maxPoolSize: 25,
    logger,
    noHandleSignals: true,
    taskList: {
      noop: () => {
        if (++done === jobs) finish(process.hrtime.bigint());
      },
    },
    preset: {
      worker: {
        concurrentJobs: 24,
        localQueue: { size: Number(size), refetchDelay: { durationMs: 10 } },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  const ended = await allDone;
  await runner.stop();
  console.log(JSON.stringify({ jobs: done, seconds: Number(ended - started) / 1e9 }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

"""procrastinate: a worker of its own with concurrency 4 that ends when nothing is left."""

import asyncio, sys, time
import procrastinate
from psycopg_pool import AsyncConnectionPool

URL, ITEMS = sys.argv[1], int(sys.argv[2])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=4, max_size=8))
pool = None

@app.task(name="points")
async def points(id):
    async with pool.connection() as connection:
        await connection.execute("UPDATE accounts SET points = points + 10 WHERE id = %s", (id,))

async def main():
    global pool
    async with app.open_async(), AsyncConnectionPool(URL, min_size=4, max_size=4, kwargs={"autocommit": True}) as pool:
        await app.schema_manager.apply_schema_async()
        await points.batch_defer_async(*({"id": item + 1} for item in range(ITEMS)))
        began = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=4, install_signal_handlers=False)
        print(time.perf_counter() - began)

asyncio.run(main())

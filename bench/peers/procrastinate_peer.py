"""procrastinate on PostgreSQL: one queue, a lock for each subscription.

``fill DSN SUBSCRIPTIONS JOBS PORT``, ``work DSN WORKERS``. The lock keeps a
subscription in order, a failed message's retry included. The POSTs go through aiohttp,
since its workers are coroutines; a delivered job is deleted, as ours.
"""

import asyncio
import logging
import sys

import aiohttp
from procrastinate import App, PsycopgConnector, RetryStrategy
from procrastinate.jobs import DeleteJobCondition

BODY = "x" * 700

app = App(connector=PsycopgConnector(conninfo=sys.argv[2], min_size=4, max_size=32))
client: aiohttp.ClientSession


@app.task(name="deliver", retry=RetryStrategy(max_attempts=8, exponential_wait=2))
async def deliver(port: int, subscription: int, update: int, body: str) -> None:
    headers = {"X-Telegrammer-Delivery-Id": f"1-{subscription}-{update}"}
    url = f"http://127.0.0.1:{port}/s/{subscription}"
    async with client.post(url, data=body.encode(), headers=headers) as response:
        await response.read()
        response.raise_for_status()


async def fill(subscriptions: int, jobs: int, port: int) -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, 1000):
            for subscription in range(subscriptions):
                updates = range(start, min(start + 1000, jobs))
                await deliver.configure(lock=f"s{subscription}").batch_defer_async(
                    *(
                        {"port": port, "subscription": subscription, "update": u, "body": BODY}
                        for u in updates
                        if u % subscriptions == subscription
                    )
                )
        await app.connector.execute_query_async("ANALYZE")


async def work(workers: int) -> None:
    global client  # the task has no other way to it
    logging.basicConfig(level=logging.INFO)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client, app.open_async():
        await app.run_worker_async(
            concurrency=workers,
            delete_jobs=DeleteJobCondition.SUCCESSFUL,
            shutdown_graceful_timeout=1,
        )


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        asyncio.run(fill(*map(int, sys.argv[3:6])))
    else:
        asyncio.run(work(int(sys.argv[3])))

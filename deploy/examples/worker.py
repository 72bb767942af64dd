# deploy/examples/worker.py
import asyncio
import logging

from coordinator.client import Partition, Worker

logging.basicConfig(level=logging.INFO)
worker = Worker("sqlite:///jobs", "billing", topics={"invoices": 12})


@worker.handler  # A task for each partition that this process has.
async def bill(p: Partition) -> None:
    print(f"invoices-{p.number} from {p.position}", flush=True)
    for offset in range(p.position, 1_000):
        await asyncio.sleep(0.1)  # The work on one row.
        await p.commit(offset + 1)
    await p.done()


worker.run()  # Until SIGTERM or Ctrl-C.

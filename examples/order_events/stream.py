"""Makes the stream ORDERS, or prints what is in it."""

import asyncio
import json
import os
import sys

import nats


async def main(what: str) -> None:
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    jetstream = client.jetstream()
    if what == "make":
        await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
    else:
        state = (await jetstream.stream_info("ORDERS")).state
        for number in range(state.first_seq, state.last_seq + 1):
            message = await jetstream.get_msg("ORDERS", number)
            assert message.data is not None
            order = json.loads(message.data)["data"]
            print(message.subject, order["order_id"], order["customer"], order["total"])
    await client.close()


asyncio.run(main(sys.argv[1]))

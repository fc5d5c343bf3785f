"""The commonest kind of handler, made quick, and the choice between the kinds."""

from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from typing import Any

from penstock.kernel.answers import TimedOut, verdict_of
from penstock.kernel.eager import resumed
from penstock.kernel.event import Event
from penstock.kernel.failpoints import failpoint
from penstock.kernel.handler import CHECK, TURNS, Answer, Dash, Quick
from penstock.kernel.handlers import BoundHandler, Registration, Runtime, UserTimeout
from penstock.kernel.queue import Item


class PlainHandler(BoundHandler, Quick):
    """The commonest kind, made quick: one event at a time, async, nothing around the call."""

    @classmethod
    def fits(cls, registration: Registration, runtime: Runtime) -> bool:
        """Whether a registration needs none of what this class leaves out."""
        plan = registration.plan
        bare = plan.tx is None and plan.attempt is None and not plan.resources
        alone = plan.is_async and not plan.batch and not runtime.hooks
        return bare and alone and not runtime.traces.active

    def dash(self, waiting: deque[Item]) -> Dash:
        """Make calls until one has to wait; a short lease or a bad payload takes the long way."""
        items: list[Item] = []
        answers: list[Answer] = []
        while waiting and len(items) < TURNS:
            item = waiting.popleft()
            items.append(item)
            # By itself: a StopIteration of the user's model is no end of the call below.
            try:
                event = self._at_once(item)
            except Exception as error:
                answers.append(self._failure(item, error))
                continue
            if event is None:
                return items, answers, self.handle([item])
            call = self._plain(event)
            try:
                awaited = call.send(None)
            except StopIteration as ended:
                answers.append(CHECK if item.finished_by_handler else verdict_of(ended.value))
            except UserTimeout as wrapped:
                answers.append(self._failure(item, wrapped.error))
            except Exception as error:  # the boundary to the user's code, as in the other kinds
                answers.append(self._failure(item, error))
            except BaseException as error:
                return items, answers, _raising(error)
            else:
                return items, answers, self._late(item, call, awaited)
        return items, answers, None

    def _at_once(self, item: Item) -> Event[Any] | None:
        """The event, if a call may begin now and nothing stands in its way."""
        slots = self._runtime.slots
        if (slots is not None and slots.locked()) or not item.lease.covers(self._margin_s):
            return None
        item.finished_by_handler = False
        return self._event(item, {})

    async def _plain(self, event: Event[Any]) -> object:
        failpoint("before_effect")
        try:
            result: object = await self._function(event)
        except TimeoutError as error:
            raise UserTimeout(error) from None  # its own, not the limit's
        failpoint("after_effect")
        return result

    async def _late(
        self, item: Item, call: Coroutine[Any, Any, object], awaited: object
    ) -> Sequence[Answer]:
        """The answer of a call that had to wait, within its time."""
        async with self._runtime.slots or nullcontext():  # free, or it would not have begun
            try:
                result = await resumed(call, awaited, self.timeout_s)
            except UserTimeout as wrapped:
                return [self._failure(item, wrapped.error)]
            except TimeoutError:
                return [self._failure(item, TimedOut())]
            except Exception as error:  # the boundary to the user's code, as in the other kinds
                return [self._failure(item, error)]
        return [CHECK if item.finished_by_handler else verdict_of(result)]


async def _raising(error: BaseException) -> Sequence[Answer]:
    raise error


def bind(registration: Registration, runtime: Runtime) -> BoundHandler:
    """A registration inside a running process, in the quickest form that does all it asks for."""
    kind = PlainHandler if PlainHandler.fits(registration, runtime) else BoundHandler
    return kind(registration, runtime)

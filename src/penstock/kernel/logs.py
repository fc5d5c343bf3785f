"""Subscriber that writes observations as log lines: constant message, data as fields.

Redaction is the last line of defence, not the first: observations hold no payloads and no secrets.
It is there for what third parties log, and for the mistake nobody has made yet.
"""

import dataclasses
import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO
from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger, Processor, WrappedLogger

from penstock.kernel.events import Observation, Subscriber
from penstock.kernel.secrets import MASK, Secret, mask_text
from penstock.kernel.settings import Settings

WITHHELD = "(withheld)"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_SECRET_WORDS = (
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "cookie",
    "api_key",
    "apikey",
    "private_key",
    "signature",
    "credential",
)
_SECRET_SUFFIXES = ("_key", "_dsn")
# These end like a secret and are none: they name a thing and are needed to find it.
_OPEN_KEYS = frozenset({"ordering_key", "dedupe_key", "idempotency_key", "signature_kind"})
_PAYLOAD_KEYS = frozenset({"payload", "body", "raw", "raw_body", "data", "row_data", "content"})
_TEXT_LENGTH_MAX = 2000
_DEPTH_MAX = 6


def redact(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Mask every field that is, or looks like, a secret; withhold payloads."""
    return {key: _redacted(key, value, 0) for key, value in event.items()}


def _redacted(key: str, value: object, depth: int) -> object:
    name = key.lower()
    if name in _PAYLOAD_KEYS:
        return WITHHELD
    if isinstance(value, Secret) or _is_secret_name(name):
        return MASK if value not in (None, "") else value
    return _redacted_value(key, value, depth)


def _redacted_value(key: str, value: object, depth: int) -> object:
    if isinstance(value, str):
        return mask_text(value[:_TEXT_LENGTH_MAX])
    if isinstance(value, bytes | bytearray | memoryview) or depth >= _DEPTH_MAX:
        return WITHHELD
    if isinstance(value, Mapping):
        return {str(k): _redacted(str(k), v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(key, item, depth + 1) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return mask_text(str(value)[:_TEXT_LENGTH_MAX])


def _is_secret_name(name: str) -> bool:
    if name in _OPEN_KEYS:
        return False
    return name.endswith(_SECRET_SUFFIXES) or any(word in name for word in _SECRET_WORDS)


def _one_line_error(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Keep the type and the last place of an exception; its text may quote anything."""
    info = event.pop("exc_info", None)
    error = info[1] if isinstance(info, tuple) else info
    if not isinstance(error, BaseException):
        return event
    event["error_type"] = type(error).__name__
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None:
        code = traceback.tb_frame.f_code
        event["error_at"] = f"{code.co_name}:{traceback.tb_lineno}"
    return event


def _processors(settings: Settings) -> list[Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionPrettyPrinter()
        if settings.log_format == "console" and settings.log_level == "debug"
        else _one_line_error,
        redact,
    ]


def _renderer(settings: Settings, stream: TextIO) -> Processor:
    if settings.log_format == "json":
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    return structlog.dev.ConsoleRenderer(colors=stream.isatty())


def make_logger(settings: Settings, stream: TextIO | None = None) -> FilteringBoundLogger:
    """A logger of our own; nothing global is touched."""
    out = stream or sys.stderr
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[*_processors(settings), _renderer(settings, out)],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[settings.log_level]),
        cache_logger_on_first_use=True,
    )
    return logger


def log_subscriber(logger: FilteringBoundLogger, worker_id: UUID | None = None) -> Subscriber:
    """A subscriber that writes each observation as one line, with the worker's id."""
    bound: FilteringBoundLogger = (
        logger.bind(worker_id=str(worker_id)) if worker_id else logger.bind()
    )
    # Most observations are of level debug and one of them comes per item: passing over those
    # that are not wanted must cost next to nothing.
    wanted = frozenset(name for name, number in LEVELS.items() if bound.is_enabled_for(number))

    def write(observation: Observation) -> None:
        if observation.level not in wanted:
            return
        fields = {
            field.name: getattr(observation, field.name)
            for field in dataclasses.fields(observation)
        }
        bound.log(LEVELS[observation.level], observation.name, **fields)

    return write


def capture_standard_logging(settings: Settings, stream: TextIO | None = None) -> logging.Handler:
    """Send what libraries log the same way, redacted. Called once by a process of ours.

    Returns the handler, so that a test or an embedding application can take it off again.
    """
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_processors(settings),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                _renderer(settings, out),
            ],
        )
    )
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(LEVELS[settings.log_level])
    return handler

"""Only what hosted pgmq 1.5.1 offers is used, and only inside our own SQL."""

import re
from pathlib import Path

import penstock.intake

# Functions and table columns of pgmq 1.5.1.
OFFERED = {
    "create",
    "send",
    "send_batch",
    "read",
    "pop",
    "delete",
    "archive",
    "set_vt",
    "metrics",
    "metrics_all",
    "list_queues",
    "purge_queue",
    "drop_queue",
}
TABLES = {"q_intake_queue", "q_intake_dlq", "a_intake_queue", "a_intake_dlq"}
SEQUENCES = {"q_intake_queue_msg_id_seq"}
ROOT = Path(penstock.intake.__file__).parent


def test_no_newer_function_of_pgmq_is_called() -> None:
    used: set[str] = set()
    for file in ROOT.rglob("*.sql"):
        used.update(re.findall(r"pgmq\.(\w+)", file.read_text()))
    assert used - OFFERED - TABLES - SEQUENCES == set()
    assert {"send", "send_batch", "read", "delete"} <= used


def test_no_column_that_1_5_1_lacks_is_named() -> None:
    for file in ROOT.rglob("*.sql"):
        assert "last_read_at" not in file.read_text(), file


def test_python_never_speaks_to_pgmq() -> None:
    for file in ROOT.rglob("*.py"):
        assert "pgmq." not in file.read_text(), file

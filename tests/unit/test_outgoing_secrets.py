"""What rows in the database may have a worker sign with or send, and what they may not."""

from pathlib import Path

import pytest

from penstock.kernel.errors import BadSetting
from penstock.kernel.outgoing_secrets import outgoing_secret
from penstock.kernel.settings import Settings, load_settings

ENV = {
    "ACME_WEBHOOK_SECRET": "one",
    "ACME_WEBHOOK_SECRET_2": "two",
    "PAGERDUTY_ROUTING_KEY": "three",
    "SENTRY_DSN": "four",
    "HOME": "/root",
    "AWS_SECRET_ACCESS_KEY": "five",
    "PENSTOCK_JWT_SECRET": "of users, of users, of users, of users",
    "COPY_OF_JWT_SECRET": "of users, of users, of users, of users",
    "PENSTOCK_HTTP_SIGNING_SECRET": "six",
    "SAME_AS_SIGNING_SECRET": "six",
    "DATABASE_URL": "postgresql://x:of%20users@db/z",
    "DATABASE_PASSWORD_SECRET": "of users",
}


def _settings(**more: str) -> Settings:
    return load_settings({**ENV, **more})


@pytest.mark.parametrize(
    "name",
    [
        "ACME_WEBHOOK_SECRET",
        "ACME_WEBHOOK_SECRET_2",
        "PAGERDUTY_ROUTING_KEY",
        "SENTRY_DSN",
        "SAME_AS_SIGNING_SECRET",
    ],
)
def test_what_is_called_like_a_receivers_secret_is_given(name: str) -> None:
    assert outgoing_secret(f"env:{name}", _settings(), ENV).reveal() == ENV[name]


@pytest.mark.parametrize(
    "reference",
    [
        "env:HOME",
        "env:AWS_SECRET_ACCESS_KEY",
        "env:DATABASE_URL",
        "env:PENSTOCK_JWT_SECRET",
        "env:COPY_OF_JWT_SECRET",
        "file:/etc/passwd",
        "file:/run/secrets/../../etc/passwd",
        "file:~/.pgpass",
        "file:/run/secrets/kubernetes.io/serviceaccount/token",
        "file:/run/secrets/kubernetes.io/x_secret",
        "file:/run/secrets/postgres_password",
        "env:DATABASE_PASSWORD_SECRET",
    ],
)
def test_what_the_process_lives_by_is_not(reference: str) -> None:
    with pytest.raises(ValueError, match=r"not for receivers|of this process itself") as refused:
        outgoing_secret(reference, _settings(), ENV)
    assert "of users" not in str(refused.value)


def test_more_is_given_where_the_process_is_told_so_and_then_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "key"
    kept.write_text("mine")
    settings = _settings(PENSTOCK_DESTINATION_SECRETS=f"file:{tmp_path}/*,env:HOME")
    assert outgoing_secret(f"file:{kept}", settings, ENV).reveal() == "mine"
    assert outgoing_secret("env:HOME", settings, ENV).reveal() == "/root"
    with pytest.raises(ValueError, match="destination_secrets"):
        outgoing_secret("env:ACME_WEBHOOK_SECRET", settings, ENV)


def test_its_own_keys_are_not_given_even_where_they_are_named() -> None:
    settings = _settings(PENSTOCK_DESTINATION_SECRETS="env:PENSTOCK_JWT_SECRET")
    with pytest.raises(ValueError, match="of this process itself"):
        outgoing_secret("env:PENSTOCK_JWT_SECRET", settings, ENV)


def test_what_is_no_reference_is_refused_at_the_start() -> None:
    with pytest.raises(BadSetting, match="neither env:NAME nor file:PATH"):
        _settings(PENSTOCK_DESTINATION_SECRETS="HOME")

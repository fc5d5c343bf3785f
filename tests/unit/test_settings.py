from pathlib import Path

import pytest

from penstock.kernel.errors import BadSetting, NoDatabase
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import TABLE, Settings, load_settings, with_values

LONG = "x" * 32


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No penstock.toml of the developer may leak in."""
    monkeypatch.chdir(tmp_path)


def test_defaults_name_no_database_and_say_what_to_do() -> None:
    settings = load_settings({})
    assert settings == Settings()
    with pytest.raises(NoDatabase, match="no database named"):
        settings.require_database()


def test_the_command_line_goes_before_the_environment_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("pool_size = 3\nbatch_size = 4\nconcurrency = 5\n")
    env = {"PENSTOCK_BATCH_SIZE": "40", "PENSTOCK_CONCURRENCY": "50"}
    settings = load_settings(env, file, {"concurrency": 500, "pool_size": None})
    assert (settings.pool_size, settings.batch_size, settings.concurrency) == (3, 40, 500)
    assert settings.source_of("pool_size") == str(file)
    assert settings.source_of("batch_size") == "PENSTOCK_BATCH_SIZE"
    assert settings.source_of("concurrency") == "command line"
    assert settings.source_of("port") == "default"


def test_sections_of_the_file_are_prefixes(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[http]\nallow_private = ["10.0.0.0/8", "hooks.internal"]\n[jwt]\nissuer = "me"\n'
    )
    settings = load_settings({})
    assert settings.http_allow_private == ("10.0.0.0/8", "hooks.internal")
    assert settings.jwt_issuer == "me"


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("DATABASE_URL", "postgres://a@h/db", "database_url"),
        ("DB_URL", "postgres://a@h/db", "database_url"),
        ("WORKER_POLL_INTERVAL_MS", "250", "poll_ms"),
        ("POLL_INTERVAL_MS", "250", "poll_ms"),
        ("MAX_ATTEMPTS", "5", "max_attempts"),
        ("KAFKA_BROKER", "kafka:9092", "kafka_broker"),
        ("DB1_SUPABASE_URL", "http://127.0.0.1:54321", "engine_api_url"),
        ("DB1_SUPABASE_ANON_KEY", "anon", "anon_key"),
        ("DB1_SUPABASE_SERVICE_ROLE_KEY", "service", "service_role_key"),
        ("DB2_SUPABASE_URL", "http://127.0.0.1:54421", "ledger_api_url"),
        ("DB2_SUPABASE_ANON_KEY", "anon", "ledger_anon_key"),
        ("DB2_SUPABASE_SERVICE_ROLE_KEY", "service", "ledger_service_role_key"),
    ],
)
def test_the_seeds_variables_are_accepted(variable: str, value: str, name: str) -> None:
    settings = load_settings({variable: value})
    found = getattr(settings, name)
    assert str(found.reveal() if isinstance(found, Secret) else found) == value
    assert settings.source_of(name) == variable


def test_our_own_variable_goes_before_the_seeds() -> None:
    env = {"PENSTOCK_DATABASE_URL": "postgres://ours/db", "DATABASE_URL": "postgres://theirs/db"}
    assert load_settings(env).require_database() == "postgres://ours/db"


def test_two_seed_variables_that_differ_are_a_contradiction() -> None:
    env = {"DATABASE_URL": "postgres://one/db", "DB_URL": "postgres://two/db"}
    with pytest.raises(BadSetting, match="DATABASE_URL and DB_URL differ"):
        load_settings(env)
    same = dict.fromkeys(env, "postgres://one/db")
    assert load_settings(same).require_database() == "postgres://one/db"


def test_an_unknown_variable_stops_with_a_suggestion() -> None:
    with pytest.raises(BadSetting, match="did you mean PENSTOCK_POOL_SIZE"):
        load_settings({"PENSTOCK_POOLSIZE": "3"})


def test_an_unknown_key_of_the_file_stops_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("concurency = 3\n")
    with pytest.raises(BadSetting, match="did you mean concurrency"):
        load_settings({})


def test_process_variables_and_those_of_tests_are_known() -> None:
    load_settings(
        {
            "PENSTOCK_FAILPOINTS": "",
            "PENSTOCK_POSTGRES_BIN": "/bin",
            "PENSTOCK_STATE_DIR": "/state",
            "PENSTOCK_APP": "a:b",
            "PENSTOCK_TEST_ANYTHING": "1",
            "OTHER": "1",
        }
    )


def test_an_empty_variable_counts_as_unset() -> None:
    assert load_settings({"PENSTOCK_ADMIN_KEY": "", "PENSTOCK_PORT": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOL_SIZE", "-1"),
        ("POOL_SIZE", "ten"),
        ("POOL_SIZE", "1_0"),
        ("POOL_SIZE", "\uff11"),
        ("POOL_SIZE", "1.5"),
        ("DRAIN_S", "nan"),
        ("DRAIN_S", "soon"),
        ("PORT", "65536"),
        ("POOLER", "maybe"),
        ("DEMO_ANONYMOUS_CLAIMS", "perhaps"),
        ("DATABASE_URL", "mysql://h/db"),
        ("DATABASE_URL", "postgres://h:port/db"),
        ("JWT_JWKS_URL", "ftp://h/keys"),
        ("JWT_JWKS_URL", "https://user:pass@h/keys"),
        ("JWT_ALGORITHMS", "none"),
        ("HTTP_ALLOW_PRIVATE", "*"),
        ("HTTP_ALLOW_PRIVATE", "http://x"),
        ("INTAKE_COMMIT_FUNCTIONS", "drop table x"),
        ("OUTBOX_SECRETS", "a,b,c"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"PENSTOCK_{name}"):
        load_settings({f"PENSTOCK_{name}": value})


def test_the_message_about_a_bad_secret_does_not_quote_it() -> None:
    with pytest.raises(BadSetting) as raised:
        load_settings({"PENSTOCK_DATABASE_URL": "mysql://app:hunter2@h/db"})
    assert "hunter2" not in raised.value.explain()


def test_secrets_may_be_references(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-file\n")
    env = {
        "PENSTOCK_ADMIN_KEY": f"file:{tmp_path / 'key'}",
        "PENSTOCK_WORKER_KEY": "env:SOMEWHERE",
        "SOMEWHERE": "from-env",
    }
    settings = load_settings(env)
    assert settings.admin_key == Secret("from-file")
    assert settings.worker_key == Secret("from-env")
    assert settings.source_of("admin_key") == "PENSTOCK_ADMIN_KEY"


@pytest.mark.parametrize(
    "reference",
    ["env:MISSING", "file:/no/such/file", "file:~nobody-of-that-name/key", "file:/dev/zero"],
)
def test_a_reference_to_nothing_stops(reference: str) -> None:
    with pytest.raises(BadSetting, match="admin_key refers to"):
        load_settings({"PENSTOCK_ADMIN_KEY": reference})


def test_only_secrets_are_references() -> None:
    assert load_settings({"PENSTOCK_JWT_ISSUER": "env:HOME"}).jwt_issuer == "env:HOME"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"jwt_secret": LONG, "jwt_algorithms": "ES256"}, "accepts only asymmetric"),
        ({"jwt_jwks_url": "https://h/k", "jwt_algorithms": "HS256"}, "there is no jwt_secret"),
        ({"jwt_secret": LONG, "jwt_algorithms": "HS256,ES256"}, "there are no public keys"),
        ({"jwt_jwks_url": "https://h/k", "jwt_jwks_file": "k.json"}, "keep one"),
        ({"jwt_secret": "short"}, "shorter than 32 bytes"),
        ({"jwt_secret": f"-----BEGIN PUBLIC KEY-----{LONG}"}, "key of a pair"),
        ({"worker_key": "same", "admin_key": "same"}, "worker_key and admin_key are the same"),
        ({"service_role_key": "same", "anon_key": "same"}, "are the same"),
        ({"service_role_key": "same", "outbox_secrets": "new,same"}, "also one of outbox_secrets"),
        ({"demo_anonymous_claims": True}, "there is no anon_key"),
        ({"port": 9000, "health_port": 9000}, "port and health_port are the same"),
        ({"direct_url": "postgres://h/db"}, "there is no database_url"),
        (
            {"database_url": "postgres://h/db", "ledger_url": "postgres://h/db"},
            "the same database",
        ),
    ],
)
def test_contradictions_stop_the_start(values: dict[str, object], expected: str) -> None:
    with pytest.raises(BadSetting, match=expected):
        load_settings({}, None, values)


def test_algorithms_follow_the_keys() -> None:
    assert load_settings({}).accepted_algorithms() == ()
    both = {"jwt_secret": LONG, "jwt_jwks_url": "https://h/k"}
    assert load_settings({}, None, both).accepted_algorithms() == ("HS256", "ES256", "RS256")


def test_no_secret_is_seen_in_the_settings_text() -> None:
    secrets = {name: f"{name}-canary-{LONG}" for name, row in TABLE.items() if row.spec.secret}
    for name in ("database_url", "direct_url", "ledger_url"):
        secrets[name] = f"postgres://app:{name}-canary@h/{name}"
    settings = load_settings({}, None, secrets)
    assert "canary" not in repr(settings)
    assert "canary" not in str(settings)


def test_demo_and_tests_can_drop_every_database() -> None:
    env = {"PENSTOCK_DATABASE_URL": "postgres://h/a", "PENSTOCK_LEDGER_URL": "postgres://h/b"}
    bare = load_settings(env).without_databases()
    assert bare.database_url is bare.ledger_url is bare.direct_url is None


def test_replaced_values_are_checked_too() -> None:
    assert with_values(Settings(), pool_size=3).source_of("pool_size") == "code"
    with pytest.raises(BadSetting, match="did you mean pool_size"):
        with_values(Settings(), poolsize=3)
    with pytest.raises(BadSetting, match="anon_key"):
        with_values(Settings(), demo_anonymous_claims=True)


def test_listen_goes_to_the_direct_address() -> None:
    env = {"PENSTOCK_DATABASE_URL": "postgres://h:6543/a", "PENSTOCK_DIRECT_URL": "postgres://h/a"}
    assert load_settings(env).listen_url() == "postgres://h/a"
    assert load_settings({"DB_URL": "postgres://h/a"}).listen_url() == "postgres://h/a"


def test_a_missing_or_broken_file_stops(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="no settings file"):
        load_settings({"PENSTOCK_CONFIG": str(tmp_path / "none.toml")})
    (tmp_path / "penstock.toml").write_text("= nonsense")
    with pytest.raises(BadSetting, match="cannot be read"):
        load_settings({})

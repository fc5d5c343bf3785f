"""Names in the environment: ours besides the settings themselves, and those of secrets to share."""

PREFIX = "PENSTOCK_"
TEST_PREFIX = "PENSTOCK_TEST_"

PROCESS_VARIABLES = {
    "PENSTOCK_APP": "the application, `module:attribute`, when --app is not given",
    "PENSTOCK_CONFIG": "the settings file, when it is not ./penstock.toml",
    "PENSTOCK_FAILPOINTS": "tests only: named places where the process stops, dies or waits",
    "PENSTOCK_POSTGRES_BIN": "directory of the server programs for the embedded database",
}

# What is called like a secret shared with a receiver; everything else has to be named.
RECEIVERS_SECRETS = (
    "env:*_SECRET",
    "env:*_SECRET_[0-9]*",
    "env:*_SECRET_NEXT",
    "env:*_SECRET_OLD",
    "env:*_ROUTING_KEY",
    "env:SENTRY_DSN",
    "file:/run/secrets/*_secret",
    "file:/run/secrets/*.creds",
    "file:/run/secrets/*.properties",
)


def is_process_variable(name: str) -> bool:
    """Whether a `PENSTOCK_*` variable is known although it is no setting."""
    return name in PROCESS_VARIABLES or name.startswith(TEST_PREFIX)

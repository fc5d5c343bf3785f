import copy
import pickle

import pytest

from penstock.kernel.secrets import MASK, Dsn, Secret, mask_text, matches_any, same_secret

CANARY = "hunter2-canary"


def test_a_secret_shows_itself_only_when_revealed() -> None:
    secret = Secret(CANARY)
    for shown in (str(secret), repr(secret), f"{secret}", f"{secret!r}", "{}".format(*[secret])):
        assert CANARY not in shown
    assert CANARY not in str({"key": secret})
    assert secret.reveal() == CANARY


def test_a_secret_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(CANARY))
    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(Secret(CANARY))


def test_secrets_compare_by_content_and_hash_alike() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


@pytest.mark.parametrize("candidate", ["", "hunter2", CANARY + " ", "\udce4", b"\xff"])
def test_only_the_same_text_matches(candidate: str | bytes) -> None:
    assert not Secret(CANARY).matches(candidate)


def test_text_and_bytes_match_alike() -> None:
    assert Secret("schlüssel").matches("schlüssel")
    assert Secret("schlüssel").matches("schlüssel".encode())
    assert same_secret(b"x", "x")


def test_any_of_two_live_secrets_matches() -> None:
    live = (Secret("old"), Secret("new"))
    assert matches_any(live, "old")
    assert matches_any(live, "new")
    assert not matches_any(live, "other")
    assert not matches_any((), "")


def test_a_url_shows_all_but_its_password() -> None:
    shown = Dsn(f"postgres://app:{CANARY}@db.example:5432/shop?sslmode=require").masked()
    assert shown == f"postgres://app:{MASK}@db.example:5432/shop?sslmode=require"


@pytest.mark.parametrize(
    "text",
    [
        f"could not connect to postgres://app:{CANARY}@db/shop",
        f"postgres://app:p@ss:{CANARY}@db/shop",
        f"postgres://app:sl/ash{CANARY}@db/shop",
        f"postgresql://db/shop?user=app&password={CANARY}",
        f"host=db password={CANARY} user=app",
        f"password='{CANARY} x' host=db",
        f"Authorization: Bearer {CANARY}",
        f"whsec_{CANARY}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyLWNhbmFyeSJ9.hunter2-canary",
    ],
)
def test_what_looks_like_a_secret_is_masked_in_texts(text: str) -> None:
    assert "canary" not in mask_text(text)


@pytest.mark.parametrize("text", ["queue outbox is paused", "http://host:80/path", "a@b"])
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert mask_text(text) == text

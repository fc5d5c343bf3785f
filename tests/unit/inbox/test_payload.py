"""Bodies that Postgres cannot hold, or only at a price, are told apart exactly."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.payloads import HOSTILE, TAME

from penstock.inbox.payload import Unrepresentable, parse, parse_object

plain = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | plain,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(plain, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_body_is_not_an_object_for_us(body: bytes) -> None:
    with pytest.raises(Unrepresentable) as caught:
        parse_object(body)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("body", TAME.values(), ids=TAME.keys())
def test_a_body_that_only_looks_hostile_is_taken(body: bytes) -> None:
    assert parse_object(body) == json.loads(body)


@given(value=values, indent=st.sampled_from([None, 0, 1]), ascii_only=st.booleans())
def test_whatever_json_writes_is_read_as_it_is(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert parse(body) == value


@given(
    body=st.binary(max_size=50)
    | st.text('{}[]":,\\u0d89eE+-1 \t\nntfals', max_size=30).map(str.encode)
)
def test_any_bytes_are_a_value_or_unrepresentable(body: bytes) -> None:
    try:
        value = parse(body)
    except Unrepresentable:
        return
    assert json.dumps(value)

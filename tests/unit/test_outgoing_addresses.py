"""Which addresses outgoing calls may reach, and which never."""

from ipaddress import ip_address

import pytest

from penstock.kernel.addresses import AddressPolicy, refusal
from penstock.kernel.http_errors import AddressRefused

PRIVATE = [
    "127.0.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.88.99.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "fe80::1",
    "fd00::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert refusal(ip_address(address)) is not None


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"]
)
def test_a_public_address_is_reached(address: str) -> None:
    assert refusal(ip_address(address)) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "https://",
        "https://user@example.com/",
        "https://user:word@example.com/",
        "https://example.com:22/",
        "https://example.com:99999/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://example.com/a b",
        "https://example.com\\@127.0.0.1/",
        "https://example.com/" + "a" * 2100,
        "",
    ],
)
def test_a_url_that_breaks_the_rules_is_refused_before_anything_is_resolved(url: str) -> None:
    with pytest.raises(AddressRefused):
        AddressPolicy().check_url(url)


def test_a_refused_url_is_not_quoted_with_its_path() -> None:
    with pytest.raises(AddressRefused) as caught:
        AddressPolicy().check_url("http://example.com/token-in-path?key=hidden")
    assert "hidden" not in str(caught.value)
    assert "token-in-path" not in str(caught.value)


def test_a_listed_host_may_be_private_plain_and_on_any_port() -> None:
    policy = AddressPolicy.allowing(["Hooks.Internal."])
    target = policy.check_url("http://hooks.internal:8080/commit")
    assert policy.check_connection(target, "10.0.0.7") is None


def test_a_listed_network_admits_only_addresses_inside_it() -> None:
    policy = AddressPolicy.allowing(["10.20.0.0/16"])
    target = policy.check_url("http://by-name.example:8080/")
    assert policy.check_connection(target, "10.20.3.4") is None
    assert policy.check_connection(target, "::ffff:10.20.3.4") is None
    assert policy.check_connection(target, "10.21.0.1") is not None
    assert policy.check_connection(target, "1.1.1.1") is not None  # public, but plain http
    with pytest.raises(AddressRefused):
        policy.check_url("http://10.21.0.1/")


def test_a_public_name_that_resolves_to_a_private_address_is_refused_when_connecting() -> None:
    policy = AddressPolicy()
    target = policy.check_url("https://rebinding.example/")
    assert policy.check_connection(target, "1.1.1.1") is None
    assert policy.check_connection(target, "169.254.169.254") is not None
    assert policy.check_connection(target, "fe80::1%eth0") is not None
    assert policy.check_connection(target, "not-an-address") is not None

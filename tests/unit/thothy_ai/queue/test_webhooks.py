"""Webhooks without services: signatures, addresses, URLs, delays."""

from __future__ import annotations

import hmac
import time
from base64 import b64encode
from ipaddress import ip_address

import pytest

from thothy_ai.errors import InvalidJobError, WebhookVerificationError
from thothy_ai.producer.batches import draft_batch
from thothy_ai.queue.webhooks.addresses import RefusedAddressError, checked_url, is_allowed, networks, resolve
from thothy_ai.queue.webhooks.deliverer import LAST_DELAY, delay_after
from thothy_ai.queue.webhooks.signing import headers, receiver_secret, verify_webhook

BODY = b'{"type":"job.ended","timestamp":"2026-11-21T06:00:00+00:00","data":{"state":"dead"}}'


def sign(secret: str, at: float | None = None) -> dict[str, str]:
    return headers("m1", BODY, [secret], int(time.time() if at is None else at))


def test_the_specification_s_example() -> None:
    """https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', [secret], 1614265330)
    assert made["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_was_signed_is_verified() -> None:
    secret = receiver_secret("s" * 24, "acme")
    assert secret.startswith("whsec_")
    upper = {name.title(): value for name, value in sign(secret).items()}
    message = verify_webhook(upper, BODY.decode(), ["whsec_AAAA", secret])
    assert (message.id, message.type, message.data["state"]) == ("m1", "job.ended", "dead")
    assert message.timestamp.isoformat() == "2026-11-21T06:00:00+00:00"


def test_each_tenant_has_a_secret_of_its_own() -> None:
    assert len({receiver_secret(secret, tenant) for secret in ("a" * 24, "b" * 24) for tenant in ("x", "y")}) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"webhook-id": "m2"}, "no signature"),
        ({"webhook-timestamp": "soon"}, "not a whole number"),
        ({"webhook-signature": "v1,AAAA v2,AAAA"}, "no signature"),
        ({"webhook-signature": "v1,é"}, "no signature"),
        ({"webhook-signature": ""}, "no signature"),
    ],
)
def test_what_was_changed_is_refused(change: dict[str, str], said: str) -> None:
    secret = receiver_secret("s" * 24, "acme")
    with pytest.raises(WebhookVerificationError, match=said):
        verify_webhook(sign(secret) | change, BODY, secret)


@pytest.mark.parametrize(("secret", "said"), [("", "empty"), ("whsec_", "empty"), ([], "no secret"), ("?", "base64")])
def test_a_receiver_without_a_secret_refuses_everything(secret: str | list[str], said: str) -> None:
    """Anybody can sign with an empty key."""
    signature = b64encode(hmac.digest(b"", f"m1.{int(time.time())}.".encode() + BODY, "sha256")).decode()
    signed = {
        "webhook-id": "m1", "webhook-timestamp": str(int(time.time())), "webhook-signature": f"v1,{signature}"
    }  # fmt: skip
    with pytest.raises(WebhookVerificationError, match=said):
        verify_webhook(signed, BODY, secret)


def test_old_future_and_foreign_messages_are_refused() -> None:
    secret = receiver_secret("s" * 24, "acme")
    for at in (time.time() - 1000, time.time() + 1000):
        with pytest.raises(WebhookVerificationError, match="from now"):
            verify_webhook(sign(secret, at), BODY, secret)
        verify_webhook(sign(secret, at), BODY, secret, tolerance_seconds=2000)
    with pytest.raises(WebhookVerificationError, match="webhook-id is missing"):
        verify_webhook({}, BODY, secret)
    with pytest.raises(WebhookVerificationError, match="not base64"):
        verify_webhook(sign(secret), BODY, "whsec_?")
    made = headers("m1", b"[]", [secret], int(time.time()))
    with pytest.raises(WebhookVerificationError, match="not a message"):
        verify_webhook(made, b"[]", secret)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fd00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_allowed(ip_address(address), ())


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_allowed(ip_address(address), ())


def test_networks_can_be_allowed() -> None:
    allowed = networks(["10.1.0.0/16", "::1/128"])
    assert is_allowed(ip_address("10.1.2.3"), allowed)
    assert is_allowed(ip_address("::ffff:10.1.2.3"), allowed)
    assert is_allowed(ip_address("::1"), allowed)
    assert not is_allowed(ip_address("10.2.0.1"), allowed)


def test_a_host_is_refused_by_the_addresses_that_it_has() -> None:
    with pytest.raises(RefusedAddressError, match=r"^localhost \(\S+\) is not a public address"):
        resolve("localhost", 80, ())
    with pytest.raises(RefusedAddressError, match=r"^10\.1\.2\.3 is not a public address"):
        resolve("10.1.2.3", 80, ())
    with pytest.raises(RefusedAddressError):
        resolve("2130706433", 80, ())  # 127.0.0.1 as one number, as the resolver reads it
    assert resolve("127.0.0.1", 80, networks(["127.0.0.0/8"])) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://a.example", "file:///etc/passwd", "https://", "https:///path", "http://[::1", "http://a:99999/",
        "https://user@a.example", "https://user:pw@a.example", "https://a.example/#x", "https://a.example/a b",
        "https://a.example/\n", "https://ä.example", "https://a.example/" + "x" * 2000, 7, "gopher://a.example",
    ],
)  # fmt: skip
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InvalidJobError, match=r"^webhook: "):
        checked_url(url)


def test_urls_and_when_they_are_told() -> None:
    assert checked_url("HTTPS://a.example:8443/x?y=1") == "https://a.example:8443/x?y=1"
    assert draft_batch(None, "batch") is None
    with pytest.raises(InvalidJobError, match="neither 'job' nor 'batch'"):
        draft_batch("https://a.example", "daily")


def test_delays_grow_to_hours_and_are_partly_random() -> None:
    assert [delay_after(attempts, 1.0) for attempts in (1, 2, 3)] == [10, 30, 90]
    assert delay_after(1, 0.0) == 5
    assert delay_after(1000, 1.0) == LAST_DELAY

"""Signatures of webhooks, as in the Standard Webhooks specification 1.0: https://www.standardwebhooks.com. Pure.

The service has one or two secrets. Each tenant's receivers have a secret of their own, derived from it: they can verify
messages to their tenant, but cannot sign for others.
"""

from __future__ import annotations

import binascii
import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from thothy_ai.errors import WebhookVerificationError

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
VERSION = "v1"
SECRET_PREFIX = "whsec_"  # noqa: S105 - the specification's
TOLERANCE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """A verified message. A repeated message has the same `id`: process each id once."""

    id: str
    type: str
    timestamp: datetime
    data: Mapping[str, Any]


def receiver_secret(secret: str, tenant: str) -> str:
    """The secret of a tenant's receivers: base64, with the specification's prefix."""
    key = hmac.digest(secret.encode(), f"thothy webhooks\0{tenant}".encode(), "sha256")
    return SECRET_PREFIX + b64encode(key).decode()


def headers(message_id: str, body: bytes, secrets: Iterable[str], at: int) -> dict[str, str]:
    """The headers of a message that is sent at this time, with a signature for each of the receiver's secrets."""
    signatures = (f"{VERSION},{_signature(secret, message_id, at, body)}" for secret in secrets)
    return {ID: message_id, TIMESTAMP: str(at), SIGNATURE: " ".join(signatures)}


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes | str,
    secret: str | Sequence[str],
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> WebhookMessage:
    """Check who sent a request to your webhook, and when. `body` is what was received, byte for byte.

    Several secrets may be given while they are being changed. Raises `WebhookVerificationError` if no signature fits,
    if the message was sent more than `tolerance_seconds` ago, or if the message is not from this service.
    """
    raw = body.encode() if isinstance(body, str) else body
    message_id, at, signatures = _parts({name.lower(): value for name, value in headers.items()})
    if abs(time.time() - at) > tolerance_seconds:
        raise WebhookVerificationError(f"the message was sent at {at}, more than {tolerance_seconds:g} s from now")
    secrets = [secret] if isinstance(secret, str) else secret
    if not secrets:
        raise WebhookVerificationError("no secret was given")
    expected = [_signature(one, message_id, at, raw) for one in secrets]
    if not any(hmac.compare_digest(one, given) for one in expected for given in signatures):
        raise WebhookVerificationError("no signature fits the secret")
    try:
        document = json.loads(raw)
        sent_at = datetime.fromisoformat(document["timestamp"])
        return WebhookMessage(message_id, document["type"], sent_at, document["data"])
    except (ValueError, KeyError, TypeError):
        raise WebhookVerificationError("the body is not a message of this service") from None


def _parts(headers: Mapping[str, str]) -> tuple[str, int, list[str]]:
    try:
        message_id, at = headers[ID], int(headers[TIMESTAMP])
        signatures = [part.partition(",") for part in headers[SIGNATURE].split()]
    except KeyError as error:
        raise WebhookVerificationError(f"the header {error.args[0]} is missing") from None
    except ValueError:
        raise WebhookVerificationError(f"the header {TIMESTAMP} is not a whole number") from None
    return message_id, at, [given for version, _, given in signatures if version == VERSION and given.isascii()]


def _signature(secret: str, message_id: str, at: int, body: bytes) -> str:
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise WebhookVerificationError("the secret is not base64") from None
    if not key:
        raise WebhookVerificationError("the secret is empty")
    return b64encode(hmac.digest(key, f"{message_id}.{at}.".encode() + body, sha256)).decode()

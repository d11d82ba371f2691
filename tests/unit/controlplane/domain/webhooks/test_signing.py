"""Signatures are those that the verifiers of Standard Webhooks accept."""

import base64
import json
import re
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from controlplane.domain.webhooks.signing import new_secret, signature, signed_headers

BODY = b'{"type": "session.ready", "timestamp": "2026-11-30T00:00:00.000Z", "data": {}}'
MESSAGE = "msg_0123456789abcdef_3-17"


def now() -> int:
    return int(time.time())


def test_secret_has_the_form_of_the_specification() -> None:
    secret = new_secret()
    assert secret.startswith("whsec_")
    assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) <= 64
    assert new_secret() != secret


def test_signature_of_the_specification() -> None:
    """The example of the specification's repository."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_signature_is_verified() -> None:
    secret = new_secret()
    headers = signed_headers([secret], MESSAGE, now(), BODY)
    assert Webhook(secret).verify(BODY, dict(headers)) == json.loads(BODY)


def test_both_secrets_verify_during_a_rotation() -> None:
    former = new_secret()
    secret = new_secret()
    headers = dict(signed_headers([secret, former], MESSAGE, now(), BODY))
    assert re.fullmatch(r"v1,[^ ]+ v1,[^ ]+", headers["webhook-signature"])
    for each in (secret, former):
        Webhook(each).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("webhook-id", "msg_0123456789abcdef_3-18"),
        ("webhook-timestamp", "earlier"),
    ],
)
def test_headers_are_signed(header: str, value: str) -> None:
    secret = new_secret()
    sent = now()
    value = str(sent - 1) if value == "earlier" else value
    headers = dict(signed_headers([secret], MESSAGE, sent, BODY)) | {header: value}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY, headers)

import pytest

from tests.support.read_back import FORMS, TOKEN, log, said
from tiltyard.runtime.logging.line import MOST_CHARACTERS, REDACTED, Form


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [
        TOKEN,
        f"x{TOKEN.upper()}y",
        ["a", TOKEN],
        {"deep": [{"er": TOKEN}]},
        ["Authorization:\nBearer " + TOKEN[20:]],
        f"{{'X-Registry-Auth': '{TOKEN[20:]}'}}",
        f"(b'X-Registry-Auth', b'{TOKEN[20:]}')",
        ValueError(TOKEN),
        "x" * (MOST_CHARACTERS - 30) + TOKEN,
    ],
)
def test_redacts_secrets_in_every_value(form: Form, value: object) -> None:
    [found] = said(lambda: log.info("it came", error=value), form)
    assert TOKEN[20:40] not in found["error"].lower()
    assert REDACTED in found["error"]

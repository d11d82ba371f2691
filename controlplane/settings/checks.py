"""What the control plane's settings point to on this machine. Blocks."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from controlplane.settings.model import Config
from tiltyard.runtime.settings import environment_checks
from tiltyard.runtime.settings.mistakes import Key, Mistake

WARNED_DAYS = 14
"""Left of a certificate when its renewal is late: those of 90 days are renewed 30 before."""


def all_mistakes(config: Config) -> Iterator[Mistake]:
    """Yield mistakes that prevent serving, and warnings."""
    if config.state_dir.is_absolute():
        yield from environment_checks.folder("state_dir", config.state_dir)
    else:
        text, hint = "is not absolute: it would depend on the folder", "begin it with /"
        yield Mistake(("state_dir",), text, hint)
    listeners = {
        "api_listen": config.listen_address(),
        "enrol_listen": config.enrol_address(),
        "metrics_listen": config.metrics_address(),
    }
    taken = {key: address for key, address in listeners.items() if address is not None}
    yield from environment_checks.listeners(taken)
    for key, (host, _) in taken.items():
        yield from environment_checks.address(key, host)
    if config.tls_certificate and config.tls_key:
        yield from environment_checks.private_key("tls_key", Path(config.tls_key))
        yield from _certificate(Path(config.tls_certificate), time.time())
    for number, agent in enumerate(config.agents):
        socket = Path(agent.address.removeprefix("unix:"))
        if not socket.parent.is_dir():
            text = f"there is no folder {socket.parent}"
            place: Key = ("agents", number, "address")
            yield Mistake(place, text, "start that agent, which makes it", is_warning=True)
    if config.failpoint:
        text = "it makes starts fail, for tests"
        yield Mistake(("failpoint",), text, "take it out", is_warning=True)


def _certificate(path: Path, now: float) -> Iterator[Mistake]:
    try:
        leaf = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return  # its loading reports it
    end = leaf.not_valid_after_utc.timestamp()
    day = datetime.fromtimestamp(end, UTC).date().isoformat()
    key = ("tls_certificate",)
    if end < now:
        yield Mistake(key, f"{path} ended on {day}", "renew it")
    elif end - now < WARNED_DAYS * 86400:
        hint = "look at what renews it"
        yield Mistake(key, f"{path} ends on {day}", hint, is_warning=True)
    if leaf.not_valid_before_utc.timestamp() > now:
        begin = leaf.not_valid_before_utc.date().isoformat()
        yield Mistake(key, f"{path} begins on {begin}", "is the clock right?", is_warning=True)

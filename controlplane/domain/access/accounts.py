"""Accounts."""

from dataclasses import dataclass

from controlplane.domain.access.quotas import Quota, Usage


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its quota and usage."""

    name: str
    created: float
    quota: Quota
    usage: Usage

"""The regions of applications, to find applications by."""

from collections.abc import Iterable

from controlplane.storage.engine.database import Database

IN_REGION = (
    "EXISTS (SELECT 1 FROM application_region WHERE application_region.region = :region"
    " AND application_region.account = application.account"
    " AND application_region.application = application.name)"
)
"""The condition that an application is assigned to `:region`."""


def set_regions(db: Database, account: str, name: str, regions: Iterable[str]) -> None:
    """Replace the regions of an application."""
    values = {"account": account, "application": name}
    db.execute(
        "DELETE FROM application_region WHERE account=:account AND application=:application",
        values,
    )
    db.executemany(
        "INSERT INTO application_region(account, application, region)"
        " VALUES (:account, :application, :region) ON CONFLICT DO NOTHING",
        [values | {"region": region} for region in regions],
    )
    db.execute(
        "DELETE FROM tag_in_region WHERE account=:account AND application=:application"
        " AND region NOT IN (SELECT region FROM application_region"
        " WHERE account=:account AND application=:application)",
        values,
    )

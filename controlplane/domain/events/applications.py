"""Events of applications, their tags and their warm pools."""

from collections.abc import Sequence

from controlplane.domain.events.event import Audience, CallerEvent
from tiltyard.records import record


@record(frozen=True, slots=True)
class ApplicationEvent(CallerEvent):
    """An event of an application."""

    object_type = "the application"


@record(frozen=True, slots=True, kw_only=True)
class ApplicationCreated(ApplicationEvent):
    """An application was created."""

    kind = "application.created"


@record(frozen=True, slots=True, kw_only=True)
class ApplicationChanged(ApplicationEvent):
    """An application was changed in these fields."""

    kind = "application.changed"

    fields: Sequence[str]


@record(frozen=True, slots=True)
class TagEvent(CallerEvent):
    """An event of a tag."""

    object_type = "`application:tag`"


@record(frozen=True, slots=True, kw_only=True)
class TagEnabled(TagEvent):
    """A tag was enabled for an image."""

    kind = "tag.enabled"

    digest: str


@record(frozen=True, slots=True, kw_only=True)
class TagPulled(TagEvent):
    """A host has the image of a tag, or had it already when the tag was enabled."""

    kind = "tag.pulled"
    audience = Audience.OPERATOR

    agent: str
    region: str
    digest: str


@record(frozen=True, slots=True, kw_only=True)
class TagAvailable(TagEvent):
    """A region has its first host that can start sessions of a tag."""

    kind = "tag.available"

    region: str
    digest: str


@record(frozen=True, slots=True, kw_only=True)
class TagFailed(TagEvent):
    """A pull failed in a region where no host has the image; once for each `reason`.

    `pull` and `reason` are those of `GET /tag`; `reason` is null for `no_room`. The actor is the
    agent of the host.
    """

    kind = "tag.failed"

    region: str
    digest: str
    pull: str
    reason: str | None


@record(frozen=True, slots=True, kw_only=True)
class TagWithdrawn(TagEvent):
    """A tag was withdrawn: the application keeps its `tagKeep` newest tags."""

    kind = "tag.withdrawn"

    tag_keep: int


@record(frozen=True, slots=True)
class WarmPoolEvent(CallerEvent):
    """An event of a warm pool."""

    object_type = "`application/region`"


@record(frozen=True, slots=True, kw_only=True)
class WarmPoolSet(WarmPoolEvent):
    """A warm pool was created or changed."""

    kind = "warm_pool.set"

    size: int
    enabled: bool


@record(frozen=True, slots=True, kw_only=True)
class WarmPoolFull(WarmPoolEvent):
    """All standbys of a warm pool can be claimed: `ready`, of the `size` that are wanted."""

    kind = "warm_pool.full"

    size: int
    ready: int


@record(frozen=True, slots=True, kw_only=True)
class WarmPoolShort(WarmPoolEvent):
    """A warm pool has lacked standbys for 10 s: `ready` of its `size` can be claimed."""

    kind = "warm_pool.short"

    size: int
    ready: int


@record(frozen=True, slots=True, kw_only=True)
class WarmPoolRemoved(WarmPoolEvent):
    """A warm pool was removed."""

    kind = "warm_pool.removed"

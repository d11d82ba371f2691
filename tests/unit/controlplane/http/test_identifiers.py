import uuid

from controlplane.http.messages import identifier


def test_identifier_is_a_uuid_of_version_4() -> None:
    made = [identifier() for _ in range(100)]
    for text in made:
        found = uuid.UUID(text)
        assert str(found) == text
        assert found.version == 4
        assert found.variant == uuid.RFC_4122
    assert len(set(made)) == len(made)

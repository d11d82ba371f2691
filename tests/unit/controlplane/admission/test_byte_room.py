"""Bytes in memory, of which each account has a share; without a connection."""

from controlplane.admission.byte_room import ByteRoom


def test_account_holds_half_while_alone() -> None:
    room = ByteRoom(100)
    body = room.hold("alice")
    assert body.grow(50)
    assert not room.hold("alice").grow(1)
    assert room.taken == 50


def test_account_holds_half_of_what_others_leave() -> None:
    room = ByteRoom(100)
    assert room.hold("alice").grow(50)
    bob = room.hold("bob")
    assert bob.grow(25)
    assert not bob.grow(26)
    assert room.hold(None).grow(12)


def test_refused_growth_changes_nothing() -> None:
    room = ByteRoom(100)
    body = room.hold("alice")
    assert body.grow(30)
    assert not body.grow(80)
    assert room.taken == 30
    body.release()
    assert room.taken == 0
    assert room.hold("alice").grow(50)


def test_size_that_is_held_already_is_not_counted_again() -> None:
    room = ByteRoom(100)
    body = room.hold("alice")
    assert body.grow(40)
    assert body.grow(10)
    assert body.grow(40)
    assert room.taken == 40


def test_bytes_are_given_back_once() -> None:
    room = ByteRoom(100)
    body = room.hold("alice")
    assert body.grow(40)
    body.release()
    body.release()
    assert room.taken == 0

"""What is done to bodies: to their values, to their text, and to how they are sent."""

import copy
import json
import zlib
from random import Random
from typing import Any

from tests.fuzz.draft import Draft
from tests.fuzz.templates import TEMPLATES

Holder = dict[str, Any] | list[Any]

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 1e300, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 65536,
    "", " ", "x", "0", "true", "x" * 129, "x" * 257, "x" * 5000, "é", "\u202e", "\U0001d518",
    "\n", "\x7f", "\ufeff", "a=b", "../../etc/passwd", "%00", "{}", "';--", "1h", "0m", "9999999h",
    "1H", "\u0663m",
    [], [None], [[]], [""], ["x"], ["x"] * 1001, [1] * 5000, {},
    {str(n): n for n in range(2000)}, {"": ""}, {"x": None}, {"x": {"y": []}},
    {"__proto__": {"x": 1}}, {"TILTYARD_SESSION_ID": "x"}, {"a=b": "x"},
)  # fmt: skip
"""Values that no field, or only some, should take; all of them are JSON."""

TEXTS = (
    b"", b" ", b"null", b"true", b"1", b'""', b"[]", b"{}", b"{", b"[", b'{"', b"}", b"nul",
    b"{}{}", b"{} x", b"{'a': 1}", b"{a: 1}", b'{"a": 1,}', b"[1,]", b"// x\n{}", b"\xff", b"\x00",
    b"\xef\xbb\xbf{}", b'{"\\ud800": 1}', b'{"a": "\\udfff"}', b'{"a": "\\u0000"}', b'"\\x"',
    b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": 01}', b'{"a": .5}', b'{"a": +1}',
    b'{"a": 9223372036854775808}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a": 1, "a": 1}',
    b"[" + b"1," * 500_000 + b"1]", b"{" + b'"":1,' * 200_000 + b'"":1}',
    b"[" * 33 + b"]" * 33, b"[" * 200_000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"a": "' + b"x" * 70_000 + b'"}', b'{"a": "' + b"x" * 1_048_576 + b'"}',
    b"x" * 1_048_577, b'{"\xed\xa0\x80": 1}', b'{"a": "\xc0\x80"}', b'{"a": "\t"}',
)  # fmt: skip
"""Whole bodies, most of them no JSON."""

RAW_TEXTS = (
    b'"\\ud800"', b'"\\udc00\\ud800"', b'"x\\u0000"', b'"\x01"', b"'x'", b'"\xff"',
    b'"\xed\xa0\x80"', b'"\\x"', b'"x', b'x"', b'""', b'"\\u00"', b'"\\ud83d\\ude00"',
)  # fmt: skip
"""Strings that are none, or that cannot be kept."""
RAW_VALUES = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9223372036854775808", b"1" * 4500,
    b"[" * 40 + b"]" * 40, b'{"a": {"a": 1, "a": 2}}', b"1.", b"-", b"-0", b"1E2", b"", b"0x1f",
    b"undefined", *RAW_TEXTS,
)  # fmt: skip
"""What is written where a value stands, as JSON cannot be made to."""


def example(draft: Draft, chance: Random) -> Any:
    """Give a valid body of the route, or None when it has none."""
    template = TEMPLATES[draft.route.method, draft.route.path]
    body = copy.deepcopy(template.body)
    for name in template.varied:
        body[name] += str(chance.randrange(100))
    return body


def dump(value: Any) -> bytes:
    """Write JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def change_values(draft: Draft, chance: Random) -> None:
    """Change values, remove, add and rename properties, at one to three places."""
    value = example(draft, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holder, key = _place(value, chance)
        if key is None:
            continue
        match chance.randrange(6):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(chance.choice(NASTY))
            case 3:
                del holder[key]
            case 4 if isinstance(holder, dict):
                holder[chance.choice(("x", "", "Id", "__proto__", "x" * 3000))] = holder[key]
            case 5 if isinstance(holder, dict):
                holder[chance.choice(("x", str(key).upper(), f"{key} "))] = holder.pop(key)
            case _:
                holder[key] = [holder[key]]
    draft.body = dump(value)


def break_text(draft: Draft, chance: Random) -> None:
    """Put something into the text that is no value, or repeat a key."""
    value = example(draft, chance)
    holder, key = _place(value, chance)
    if key is None or not isinstance(holder, dict):
        draft.body = chance.choice(TEXTS)
        return
    mark = "\ue000"
    if chance.random() < 0.25:
        holder[mark] = holder[key]
        draft.body = dump(value).replace(dump(mark), dump(key))
    else:
        fitting = RAW_TEXTS if isinstance(holder[key], str) else RAW_VALUES
        holder[key] = mark
        draft.body = dump(value).replace(dump(mark), chance.choice((*fitting, *RAW_VALUES)))


def replace_text(draft: Draft, chance: Random) -> None:
    """Send something else, cut the body off, encode it otherwise or change bytes of it."""
    body = dump(example(draft, chance))
    match chance.randrange(6):
        case 0 | 1:
            body = chance.choice(TEXTS)
        case 2:
            body = body[: chance.randrange(len(body))]
        case 3:
            encoding = chance.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037"))
            body = body.decode().encode(encoding)
        case 4:
            body = body.replace(b"a", chance.choice((b"\xe9", b"\xff", b"\xc3", b"\xed\xb0\x80")))
        case _:
            changed = bytearray(body)
            for _ in range(chance.randint(1, 3)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            body = bytes(changed)
    draft.body = body


def encode(draft: Draft, chance: Random) -> None:
    """Name a Content-Encoding, true or not."""
    name = chance.choice((b"gzip", b"deflate", b"br", b"identity", b"Identity", b"x", b""))
    body = draft.body or b"{}"
    if name == b"deflate":
        # A bomb: 20 kB that would become 20 MB.
        body = zlib.compress(bytes(20 * 1024 * 1024) if chance.random() < 0.1 else body)
    draft.body = body
    draft.headers.append((b"Content-Encoding", name))


def chunk(draft: Draft, chance: Random) -> None:
    """Send the body in chunks."""
    body, chunks = draft.body or b"", []
    while body:
        size = chance.choice((1, 7, 100, 65_536, 10**7))
        if len(body) > 10_000:
            size = max(size, 65_536)
        part, body = body[:size], body[size:]
        extension = chance.choice((b"", b"", b";x", b';x="y"'))
        chunks.append(b"%x%s\r\n%s\r\n" % (len(part), extension, part))
    draft.chunks = [*chunks, b"0\r\n" + chance.choice((b"", b"X: y\r\n")) + b"\r\n"]


def tear(draft: Draft, chance: Random) -> None:
    """Break the framing of the body: what follows on the connection cannot be told."""
    draft.alone = draft.torn = True
    draft.chunks = None
    body = draft.body or b"{}"
    match chance.randrange(8):
        case 0:
            draft.length = b"%d" % (len(body) + chance.randint(1, 20))
        case 1:
            draft.length = b"%d" % chance.randrange(len(body) + 1)
        case 2:
            draft.length = chance.choice((b"-1", b"+1", b"0x2", b"1 1", b"\xb2", b"9" * 30, b"x"))
            draft.malformed = True
        case 3:
            draft.headers.append((b"Content-Length", b"7"))
            draft.length, draft.malformed = b"8", True
        case 4:
            draft.headers.append((b"Transfer-Encoding", b"chunked"))
            draft.malformed = draft.body is not None
            draft.body = body
        case _:
            bad = (b"zz\r\nx\r\n", b"-1\r\n", b"f" * 17 + b"\r\n", b"5\r\nhelloX", b"\r\n", b"5\n")
            draft.chunks = [b"%x\r\n%s\r\n" % (len(body), body), chance.choice(bad)]


def _place(value: Any, chance: Random) -> tuple[Any, Any]:
    """Choose where to change something: the holder, and the key or index in it."""
    places: list[tuple[Holder, Any]] = []
    pending = [value]
    while pending:
        item = pending.pop()
        pairs = item.items() if isinstance(item, dict) else enumerate(item)
        for key, child in pairs:
            places.append((item, key))
            if isinstance(child, dict | list):
                pending.append(child)
    return chance.choice(places) if places else (value, None)

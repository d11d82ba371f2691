"""What is done to the method, path, query and headers of a request."""

from random import Random
from urllib.parse import quote

from tests.fuzz.draft import Draft

MAX_TARGET = 8000
"""A request line with it is still short enough to be read."""
OTHER_METHODS = ("PATCH", "OPTIONS", "HEAD", "TRACE", "PROPFIND", "GET", "POST", "PUT", "DELETE")
NO_METHODS = ("get", "BREW", "G\x80T", "GE T", "GET\x00", "X" * 300, "(")

SEGMENTS = (
    b"x", b".", b"..", b"%2e%2e", b"%2F", b"a%2Fb", b"%2f%2e%2e%2f", b"%00", b"%0d%0aX:%201", b"%",
    b"%zz", b"%u0041", b"%ff%fe", b"%ed%a0%80", b"%C3%A9", b"%25", b"%252F", b"%7B%7D", b"{id}",
    b"%E2%80%AE", b"a+b", b"a;b", b"a=b&c", b"~!$'()*,:@", b"x" * 257, b"x" * 3000, b"%20", b"a b",
    b"__proto__", b"%F0%9D%94%98" * 300, b"%7F", b"*", b"[]", b"|", b"%5C..%5C", b"%0A", b"",
)  # fmt: skip
PATHS = (
    b"/", b"//", b"/.", b"/..", b"/nope", b"/session/", b"//session", b"/session//x", b"/SESSION",
    b"/session/../session", b"/./session", b"/session/x/y", b"/session/player", b"/token/x",
    b"/session%2Fx", b"/%73ession", b"/session#x", b"/application//tags", b"/tag/a/b",
    b"/healthz/", b"/tag/a/b/c/d", b"/metrics", b"/favicon.ico", b"/.git/config", b"/%",
    b"/" + b"a/" * 1000,
)  # fmt: skip
NAMES = (
    b"all", b"location", b"image", b"tag", b"host", b"id", b"follow", b"session", b"path",
    b"playerCount", b"playerCount[lt]", b"playerCount[gt]", b"playerCount[lt][x]",
    b"playerCount[eq]", b"playerCount[]", b"playerCount[", b"playerCount%5Blt%5D", b"filter",
    b"filter[__proto__]", b"filter[constructor][prototype]", b"filter[]", b"filter[", b"filter[a]",
    b"filter]a[", b"filter[a]b", b"filter[[a]]", b"filterNot", b"filterNot[a]", b"filter%5Ba%5D",
    b"FILTER[a]", b"page", b"pageSize", b"", b"unknown", b"%00", b"%ff", b"a" * 500,
)  # fmt: skip
VALUES = (
    b"", b"x", b"true", b"TRUE", b"0", b"1", b"yes", b"-1", b"+5", b"1.5", b"1e999", b"9" * 400,
    b"9" * 4400, b"%30", b"%00", b"%ff%fe", b"%ed%a0%80", b"%zz", b"%", b"%u0041", b"a+b",
    b"a%2Bb", b"%C3%A9", b"..", b"/", b"/data", b"data", b"/%00", b"/" + b"x" * 4096, b"live-0",
    b"ended-0", b"%F0%9D%94%98", b"%D9%A3", b"%20", b"%0a", b"'", b'"', b"<script>", b"[]", b"=",
)  # fmt: skip
BEARERS = (
    (), (b"",), (b"Bearer",), (b"Bearer ",), (b"{{alice}}",), (b"Basic YTpi",), (b"Bearer x",),
    (b"Basic {{alice}}",), (b"bearer {{alice}}",), (b"BEARER   {{alice}}  ",),
    (b"Bearer\t{{alice}}",), (b"Bearer {{alice}} x",), (b"Bearer {{alice}},",),
    (b"Bearer {{alice}}, Bearer {{bob}}",), (b"Bearer {{alice}}", b"Bearer {{alice}}"),
    (b"Bearer {{alice}}", b""), (b"Basic x", b"Bearer {{alice}}"), (b'Bearer "{{alice}}"',),
    (b"Bearer {{alice:0:50}}",), (b"Bearer {{alice:3:}}",), (b"Bearer {{alice:0:91}}",),
    (b"Bearer {{alice:0:84}}00000000",), (b"Bearer {{alice:0:20}}{{bob:20:}}",),
    (b"Bearer ty_0123456789abcdef_" + b"0" * 72,), (b"Bearer " + b"a" * 4000,), (b"Bearer \xff",),
    (b"Bearer \xc3\xa9",), (b"Bearer {{expired}}",), (b"Bearer {{revoked}}",),
    *[(b"Bearer {{%s}}" % name,) for name in (b"reader", b"starter", b"operator", b"bob")] * 2,
    (b"Bearer {{bob}}",), (b"bEaReR {{bob}}",), (b"Digest username=x",), (b"{{alice}} Bearer",),
)  # fmt: skip
HEADERS = (
    (b"X-Forwarded-For", b"1.1.1.1, \xff, ::1"), (b"X-Forwarded-For", b"[::1]:1, , unknown"),
    (b"Forwarded", b"for=_x"), (b"Cookie", b"a=b; " * 900), (b"Cookie", b"\xff=;;=\x80"),
    (b"Content-Type", b"text/plain"), (b"Content-Type", b"application/json; charset=utf-16"),
    (b"Content-Type", b"multipart/form-data; boundary="), (b"Content-Type", b"\xff"),
    (b"Accept", b"image/png;q=x"), (b"Accept-Encoding", b"gzip"), (b"Range", b"bytes=0-1"),
    (b"If-None-Match", b"*"), (b"If-Modified-Since", b"never"), (b"Origin", b"null"),
    (b"Expect", b"100-continue"), (b"X" * 4000, b"x"),
    (b"Connection", b"keep-alive, x"), (b"Te", b"trailers"), (b"Trailer", b"x"), (b"X", b""),
    (b"X-Http-Method-Override", b"DELETE"), (b"X-Request-Id", b"mine"), (b"Prefer", b"wait=x"),
    (b"Prefer", b'return=minimal; wait=ready, wait="\xff'), (b"Prefer", b"wait=60,;=,ready"),
)  # fmt: skip
BAD_HEADERS = (
    (b"Expect", b"200-ok"), (b"Expect", b""), (b"X Y", b"a"), (b"X", b"a\x00b"), (b"", b"a"),
    (b"X\x80", b"a"), (b"X", b"a\nY: b"), (b"X", b"x" * 9000), (b"X ", b"a"), (b"X", b"a\rb"),
    (b"Host", b"other:99999"), (b"Transfer-Encoding", b"gzip"),
    (b"Transfer-Encoding", b"xchunked"), (b"X" * 9000, b"a"),
)  # fmt: skip


def change_method(draft: Draft, chance: Random) -> None:
    """Use a method that the path has not, or that is none."""
    if chance.random() < 0.2:
        draft.method = chance.choice(NO_METHODS)
        draft.malformed = draft.alone = True
    else:
        draft.method = chance.choice(OTHER_METHODS)


def change_segment(draft: Draft, chance: Random) -> None:
    """Replace, repeat or remove a part of the path."""
    segments = draft.path.split(b"/")[1:]
    at = chance.randrange(len(segments))
    match chance.randrange(5):
        case 0:
            segments.insert(at, chance.choice(SEGMENTS))
        case 1:
            segments[at] += chance.choice(SEGMENTS)
        case 2:
            segments[at] = quote(segments[at].swapcase()).encode()
        case _:
            segments[-1 if len(segments) > 1 else at] = chance.choice(SEGMENTS)
    draft.path = b"/" + b"/".join(segments)


def change_path(draft: Draft, chance: Random) -> None:
    """Ask for another path."""
    draft.path = chance.choice(PATHS)


def change_query(draft: Draft, chance: Random) -> None:
    """Add, repeat, remove and change parameters."""
    pairs = draft.query.split(b"&") if draft.query else []
    for _ in range(chance.choice((1, 1, 2, 4))):
        match chance.randrange(8):
            case 0 | 1 | 2:
                pairs.append(chance.choice(NAMES) + b"=" + chance.choice(VALUES))
            case 3 if pairs:
                pairs.append(chance.choice(pairs))
            case 4 if pairs:
                pairs.pop(chance.randrange(len(pairs)))
            case 5 if pairs:
                at = chance.randrange(len(pairs))
                pairs[at] = pairs[at].partition(b"=")[0] + b"=" + chance.choice(VALUES)
            case 6:
                pairs.append(chance.choice((b"", b"=", b"a", b"?", b"a=b=c", b";", b"&", b"%26")))
            case _:
                many = chance.choice((31, 32, 33, 500))
                pairs += [b"filter[%d]=" % number for number in range(many)]
    draft.query = b"&".join(pairs)[: MAX_TARGET - len(draft.path)]


def flood_query(draft: Draft, chance: Random) -> None:
    """Send ten thousand keys: more than a request line may have."""
    name = chance.choice((b"filter[%d]=x", b"a%d", b"playerCount[%d]=1"))
    draft.query = b"&".join(name % number for number in range(10_000))
    draft.malformed = draft.alone = True


def change_bearer(draft: Draft, chance: Random) -> None:
    """Present a token in another way, or another token."""
    draft.headers = [pair for pair in draft.headers if pair[0] != b"Authorization"]
    draft.headers += [(b"Authorization", value) for value in chance.choice(BEARERS)]


def add_header(draft: Draft, chance: Random) -> None:
    """Add headers that must change nothing."""
    # Of a name but one: some may not be repeated.
    draft.headers += dict(chance.sample(HEADERS, chance.choice((1, 2, 5)))).items()
    if chance.random() < 0.2:
        draft.headers += [(b"X-%d" % number, b"x") for number in range(40)]


def break_head(draft: Draft, chance: Random) -> None:
    """Make the head malformed: a header, their number, or the version."""
    draft.malformed = draft.alone = True
    match chance.randrange(6):
        case 0:
            draft.headers += [(b"X-%d" % number, b"x") for number in range(65)]
        case 1:
            versions = (b"HTTP/2.0", b"HTTP/1.2", b"HTTP/0.9", b"HTTP/x", b"http/1.1", b"X", b"")
            draft.version = chance.choice(versions)
        case _:
            draft.headers.insert(0, chance.choice(BAD_HEADERS))


def use_http_1_0(draft: Draft, _: Random) -> None:
    """Ask as an old client: the connection ends with the answer."""
    draft.alone = True
    if not draft.malformed:
        draft.version = b"HTTP/1.0"

"""Strings that try to move a source of images elsewhere, and the fields that accept each.

The letters are fields: `r` a repository of a configured registry, `t` a tag, `a` the address or
an alias of a registry, which only operators set.
"""

SHA = "sha256:" + "a" * 64

_BY_DOORS: dict[str, tuple[str, ...]] = {
    "rta": (
        "127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "xn--mnchen-3ya.example",
        "xn--a.example", "localhost", "localhost.localdomain", "evil.localhost",
        "metadata.google.internal", "kubernetes.default.svc", "evil.example", "metadata.example",
        "carrier.example", "ula.example", "mapped.example", "nat64.example", "sixtofour.example",
        "compatible.example", "link-local.example", "zero.example", "half.example",
        "half6.example", "ghcr.io.evil.example",
    ),
    "rt": (
        "0", "2130706433", "2852039166", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
        "127.1", "169.254.43518", "256.256.256.256", "1.2.3.4.5", "a--b", "a__b", "localhost6",
        "ip6-localhost", "metadata", "instance-data", f"{'a' * 64}.example",
    ),
    "a": (
        "127.0.0.1:5000", "10.0.0.1:5000", "169.254.169.254:80", "localhost:5000",
        "host.docker.internal:5000", "loopback.example:5000", "evil.example:443",
    ),
    "r": (
        "169.254.169.254/latest/meta-data", "x/manifests/latest", "x/blobs/uploads",
        "ghcr.io.evil/x", "ghcr.ioevil/x", "evilghcr.io/x", "ghcr.io/ghcr.io/x",
        "ghcr.io/mirror.example/x", "docker.io/library/x", "a" * 129, "/".join(["a"] * 128),
        "a." * 127 + "a",
    ),
    "t": (
        "127.0.0.1.", "_catalog", "evil.example.", "localhost.", "a..b", "a-", "a___b", "a._b",
        "LOCALHOST", "LOCAL", "Local",
    ),
    "": (
        "2130706433:5000", "0xa9fea9fe:80", "10.1:5000", "\uff11\uff12\uff17.0.0.1",
        "\u0661\u0662\u0667.\u0660.\u0660.\u0661", "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
        "127\u30020\u30020\u30021", "::1", "[::1]", "[::1]:5000", "[::]:5000", "::ffff:127.0.0.1",
        "[::ffff:10.0.0.1]:5000", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a00:1::]",
        "[fd00:ec2::254]", "[fe80::1%25lo]", "[::1", "user@evil.example", "user:pass@10.0.0.1",
        "local@10.0.0.1:5000", "ghcr.io@evil.example/x", "@10.0.0.1", "http://10.0.0.1/",
        "https://evil.example", "HTTP://EVIL.EXAMPLE", "https:evil.example", "//evil.example/x",
        "file:///etc/passwd", "unix:///var/run/docker.sock", "gopher://127.0.0.1:5000/_x",
        "docker://evil.example/x", "javascript:alert(1)", "data:,x", "a#b", "a?b", "a?n=1&last=x",
        "a;b", "a&b", "a,b", "a=b", ".", "..", "../x", "./x", "/x", "x/", "a//b", "a/./b",
        "a/../b", "studio/../../v2/_catalog", "library/../../x", "registry:5000/../x", "..;/x",
        "..\\x", "a\\b", "\\\\evil.example\\x", "v2/_catalog", "%2e%2e%2fx", "a%2fb",
        "a%2f..%2f..%2fb", "a%00b", "a%0d%0ab", "%31%32%37.0.0.1", "a%", "&#47;x",
        "a\r\nHost: evil.example", "evil.example\r\n\r\nGET / HTTP/1.1", "a\nb", "a\rb", "local\n",
        "x\n", "a\0b", "\0", "\ud800", "a\u2028b", "a\x1b[2Jb", "", " ", " local", "local ",
        "lo cal", "\tlocal", "\u00a0local", "local\u200b", "\u202elacol", "m\u00fcnchen.example",
        "\u0435vil.example", "\u0261hcr.io/x", "\uff47hcr.io/x", "ghcr\u3002io/x",
        "g\u200bhcr.io/x", "\u24db\u24de\u24d2\u24d0\u24db", "\u212aube.example", "lo\u017ft",
        "stra\u00dfe", "ghcr.io./x", ".a", "-a", "--registry=evil.example", "evil.example:",
        "evil.example:0", "evil.example:65536", "evil.example:99999999999999999999",
        "evil.example:-1", "evil.example:+5", "evil.example:0443", "evil.example:443:443",
        "evil.example:5000x", "evil.example:\u0665", ":5000", "ghcr.io:443/x",
        "ghcr.io:evil.example/x", "GHCR.IO/x", "ghcr.io/", "ghcr.io//x", "ghcr.io/../x", SHA,
        f"x@{SHA}", f"studio/game@{SHA}", f"@{SHA}", "studio/game:v1", "v1@sha256", "Studio/Game",
        "$(id)", "`id`", "${HOME}", "{repository}", "a'b", 'a"b', "a|b", "<a>", "*", "~",
        "a" * 256, "/".join(["a"] * 129), "x" * 100_000,
    ),
}  # fmt: skip
"""Addresses, URLs, paths, names of other alphabets and of the machine, ports, digests."""

STRINGS = {text: doors for doors, texts in _BY_DOORS.items() for text in texts}

ALIASES = ("ghcr.io", "mirror.example")  # Aliases of the configured registry

STRIPPED = {"ghcr.io/ghcr.io/x": "ghcr.io/x", "ghcr.io/mirror.example/x": "mirror.example/x"}
"""Repositories from which an alias is removed, once."""

NO_TEXT = frozenset("\0\ud800")  # A body with one of these characters is refused as a whole
PORTS = (80, 443, 5000)  # The ports that are named above, and the default ones

ADDRESSES: dict[str, tuple[str, ...]] = {
    "localhost": ("127.0.0.1", "::1"),
    "loopback.example": ("127.0.0.1",),
    "metadata.google.internal": ("169.254.169.254",),
    "metadata.example": ("169.254.169.254",),
    "carrier.example": ("100.64.0.1",),
    "ula.example": ("fd00:ec2::254",),
    "mapped.example": ("::ffff:10.0.0.1",),
    "nat64.example": ("64:ff9b::a9fe:a9fe",),
    "sixtofour.example": ("2002:a00:1::",),
    "compatible.example": ("::10.0.0.1",),
    "link-local.example": ("fe80::1%1",),
    "zero.example": ("0.0.0.0",),
    "half.example": ("1.1.1.1", "10.0.0.1"),
    "half6.example": ("2606:4700::1111", "fd00:ec2::254"),
    "public.example": ("1.1.1.1",),
}
"""The answers of the DNS of the tests; any other name is 10.0.0.1."""

REBOUND = "rebound.example"
"""A name with a public address in its first DNS answer, and 10.0.0.1 in later ones."""

OPERATORS_CHOICE = {
    "127.0.0.1": ("127.0.0.1", 80),
    "127.0.0.1:5000": ("127.0.0.1", 5000),
    "10.0.0.1": ("10.0.0.1", 443),
    "10.0.0.1:5000": ("10.0.0.1", 5000),
    "169.254.169.254": ("169.254.169.254", 443),
    "169.254.169.254:80": ("169.254.169.254", 80),
    "0.0.0.0": ("127.0.0.1", 443),
    "localhost": ("127.0.0.1", 80),
    "localhost:5000": ("127.0.0.1", 5000),
}
"""Where an IPv4 address or the name of the machine leads when an operator sets it."""

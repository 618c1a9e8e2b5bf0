"""Which callback URLs are accepted, and the one spelling of each."""

import string

import pycurl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from telegrammer.callbacks.url import LENGTH_LIMIT, CallbackUrl

VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))
LONGEST_LABEL = "a" * 63


@pytest.mark.parametrize(
    ("given_url", "canonical"),
    [
        ("http://example.org/", "http://example.org/"),
        ("http://example.org", "http://example.org/"),
        ("HTTPS://Example.ORG/Hook", "https://example.org/Hook"),
        ("http://h:80/", "http://h/"),
        ("http://h:0080/", "http://h/"),
        ("https://h:443", "https://h/"),
        ("https://h:80/", "https://h:80/"),
        ("http://h:443/", "http://h:443/"),
        ("http://h:65535/", "http://h:65535/"),
        ("http://h:08080/", "http://h:8080/"),
        ("http://h?a=1", "http://h/?a=1"),
        ("http://h/?", "http://h/?"),
        ("http://h//a//", "http://h//a//"),
        ("http://h/a/../b/./c", "http://h/a/../b/./c"),
        ("http://h/%7Euser/%2f%zz%", "http://h/%7Euser/%2f%zz%"),
        ("http://h/a@b:c?d=e@f/?g", "http://h/a@b:c?d=e@f/?g"),
        ('http://h/"<>[]^`{|}\\', 'http://h/"<>[]^`{|}\\'),
        ("http://h?b=2&a=1&b=2&empty=&", "http://h/?b=2&a=1&b=2&empty=&"),
        ("http://127.0.0.1:8000/hook", "http://127.0.0.1:8000/hook"),
        ("http://10.0.0.1/", "http://10.0.0.1/"),
        ("http://255.255.255.255/", "http://255.255.255.255/"),
        ("http://256.1.1.a/", "http://256.1.1.a/"),
        ("http://LOCALHOST/", "http://localhost/"),
        ("http://my_service:9000/", "http://my_service:9000/"),
        ("http://example.org./", "http://example.org./"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("http://[FE80::A]:81/x", "http://[fe80::a]:81/x"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]/"),
        (f"http://{LONGEST_LABEL}/", f"http://{LONGEST_LABEL}/"),
    ],
)
def test_accepted_in_canonical_form(given_url: str, canonical: str) -> None:
    """Scheme, host and default port are made one; path and query stay as they came."""
    assert str(CallbackUrl.parse(given_url)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/hook",
        "//h/hook",
        "h/hook",
        "http:/h/",
        "http:h",
        "http//h/",
        "ftp://h/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "httpx://h/",
        " http://h/",
    ],
)
def test_only_absolute_http_urls(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        CallbackUrl.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://", "host"),
        ("http:///hook", "host"),
        ("http://?x", "host"),
        ("http://:80/", "host"),
        ("http://./", "host"),
        ("http://a..b/", "host"),
        ("http://-a/", "host"),
        ("http://a%41/", "host"),
        ("http://a,b/", "host"),
        ("http://a\\b/", "host"),
        ("http://256.1.1.1/", "host"),
        ("http://1.1.1.1000:80/", "host"),
        ("http://[::1/", "host"),
        ("http://::1/", "host"),
        ("http://[]/", "host"),
        ("http://[::g]/", "host"),
        ("http://[127.0.0.1]/", "host"),
        ("http://[fe80::1%25eth0]/", "host"),
        ("http://[fe80::1%eth0]/", "host"),
        ("http://[::1]x/", "host"),
        (f"http://{LONGEST_LABEL}a/", "host"),
        (f"http://{'a.' * 127}a/", "host"),
        ("http://h:0/", "port"),
        ("http://h:65536/", "port"),
        ("http://h:99999/", "port"),
        ("http://h:000080/", "port"),
        ("http://h:/", "port"),
        ("http://h:+80/", "port"),
        ("http://h:-1/", "port"),
        ("http://h:8o/", "port"),
        ("http://h:80:80/", "port"),
        ("http://user@h/", "user"),
        ("http://user:password@h/", "user"),
        ("http://@h/", "user"),
        ("http://h\\@evil/", "user"),
        ("http://h/#", "fragment"),
        ("http://h/a#b", "fragment"),
        ("http://h#", "fragment"),
        ("http://h/a b", "white space"),
        ("http://h/a\tb", "white space"),
        ("http://h/a\r\nX: y", "white space"),
        ("http://h/\x00", "control"),
        ("http://h/\x7f", "control"),
        ("http://h/\n", "white space"),
        ("http://h/é", "ASCII"),
        ("http://bücher/", "ASCII"),
        ("http://h/\ud800", "ASCII"),
    ],
)
def test_refused_with_the_reason(text: str, reason: str) -> None:
    """What cannot be called, or would be called otherwise than written, is refused."""
    with pytest.raises(ValueError, match=reason):
        CallbackUrl.parse(text)


def test_the_length_limit_is_exact() -> None:
    longest = "http://h/".ljust(LENGTH_LIMIT, "a")

    assert str(CallbackUrl.parse(longest)) == longest
    with pytest.raises(ValueError, match="2048"):
        CallbackUrl.parse(longest + "a")


def test_the_canonical_form_obeys_the_length_limit_too() -> None:
    """What a listing shows can be registered again."""
    with pytest.raises(ValueError, match="2048"):
        CallbackUrl.parse("http://h?".ljust(LENGTH_LIMIT, "a"))


def test_split_into_what_is_called_and_what_is_asked_for() -> None:
    url = CallbackUrl.parse("HTTP://H:81?q=%41")

    assert (url.origin, url.target) == ("http://h:81", "/?q=%41")


labels = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=20)
names = st.lists(labels, min_size=1, max_size=4).map(".".join)
ipv4 = st.ip_addresses(v=4).map(str)
ipv6 = st.ip_addresses(v=6).map(lambda address: f"[{str(address).upper()}]")
numbers = st.integers(0, 2**33).flatmap(lambda n: st.sampled_from([str(n), hex(n), f"{n}.1"]))
ports = st.one_of(st.just(""), st.integers(0, 70000).map(lambda port: f":{port}"))
rests = st.text(VISIBLE.replace("#", ""), max_size=60)
likely_urls = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["http://", "https://", "HTTP://", "hTTps://"]),
        st.one_of(names, ipv4, ipv6, numbers),
        ports,
        st.one_of(st.just(""), rests.map("/".__add__), rests.map("?".__add__)),
    ),
)
any_text = st.text(VISIBLE, max_size=40).map("http://".__add__)


def accepted(text: str) -> CallbackUrl:
    try:
        return CallbackUrl.parse(text)
    except ValueError:
        assume(False)
        raise


@given(likely_urls | any_text)
def test_the_canonical_form_is_its_own(text: str) -> None:
    url = accepted(text)

    assert CallbackUrl.parse(str(url)) == url


@given(likely_urls | any_text)
def test_path_and_query_stay_byte_for_byte(text: str) -> None:
    url = accepted(text)
    after_scheme = text.partition("://")[2]
    cut = min((after_scheme + "/?").find(mark) for mark in "/?")
    rest = after_scheme[cut:]

    assert url.target == (rest if rest.startswith("/") else "/" + rest)


@given(likely_urls | any_text)
def test_libcurl_takes_what_is_accepted(text: str) -> None:
    """libcurl finds the origin well-formed and goes on to connect to exactly that port."""
    url = accepted(text)

    error, port = what_libcurl_says(url)

    assert error == pycurl.E_COULDNT_CONNECT
    assert port == expected_port(url.origin)


def what_libcurl_says(url: CallbackUrl) -> tuple[int, int]:
    """Let libcurl go as far as its first socket, which it does not get."""
    asked: list[int] = []

    def no_socket(_purpose: int, address: tuple[int, int, int, tuple[str, int]]) -> int:
        asked.append(address[3][1])
        return pycurl.SOCKET_BAD

    curl = pycurl.Curl()
    try:
        curl.setopt(pycurl.URL, url.origin)
        curl.setopt(pycurl.REQUEST_TARGET, url.target)
        curl.setopt(pycurl.PROXY, "")
        curl.setopt(pycurl.CONNECT_TO, ["::127.0.0.1:"])  # no name is looked up
        curl.setopt(pycurl.OPENSOCKETFUNCTION, no_socket)
        curl.perform()
    except pycurl.error as error:
        return int(error.args[0]), asked[0] if asked else 0
    finally:
        curl.close()
    raise AssertionError("libcurl connected without a socket")


def expected_port(origin: str) -> int:
    scheme, _, authority = origin.partition("://")
    host_end = authority.rfind("]")
    _, colon, port = authority[host_end + 1 :].rpartition(":")
    return int(port) if colon else {"http": 80, "https": 443}[scheme]

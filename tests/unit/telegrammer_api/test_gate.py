"""What every request passes before its operation, in the contract's order."""

import io

import falcon.testing
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.log_lines import logged
from support.wsgi import Api, error_of
from telegrammer_api.front import AUTHORIZATIONS, KEY_ID, REQUEST_ID, ROUTE, BodyTimedOut

ROUTES = [
    ("POST", "/send"),
    ("POST", "/subscribe"),
    ("GET", "/subscriptions"),
    ("DELETE", "/subscriptions/1"),
    ("GET", "/health"),
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]
METHODS += ["get", "post", "FOO", "WEBSOCKET", "PROPFIND"]
SEND = {"chat_id": 1, "text": "x"}


def outcome(result: falcon.testing.Result) -> tuple[int, str]:
    return result.status_code, error_of(result)["code"]


class Unreadable(io.BytesIO):
    """A body that must not be read."""

    def read(self, size: int | None = -1) -> bytes:
        raise AssertionError("the body was read")


class Dripping(io.BytesIO):
    """A body that does not arrive in time."""

    def read(self, size: int | None = -1) -> bytes:
        raise BodyTimedOut


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/x",
        "/Send",
        "/send/",
        "/send/x",
        "//send",
        "/./send",
        "/x/../send",
        "/%73end",
        "/send%2F",
        "/send%00",
        "/health%20",
        "/subscriptions/",
        "/subscriptions//",
        "//subscriptions/1",
        "/subscriptions/1/",
        "/subscriptions/1/2",
        "/subscriptions%2F1",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "WEBSOCKET", "FOO"])
def test_unknown_path_is_404_for_everyone(api: Api, method: str, path: str) -> None:
    """Whatever the method, without a look at the credential; no alias of a path is one."""
    assert outcome(api.call(method, path, authorization=None)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "target",
    ["http://h/send", "http://h/", "*", "send", "/send#a", "/send?#a", "h:80", ""],
)
def test_other_forms_of_the_request_target_are_404(api: Api, target: str) -> None:
    result = api.call("POST", "/send", environ={"RAW_URI": target}, authorization=None)

    assert outcome(result) == (404, "NOT_FOUND")


def test_a_query_changes_nothing(api: Api) -> None:
    assert api.call("GET", "/subscriptions?a=%2F&b").status_code == 200


@pytest.mark.parametrize(
    ("offered", "path", "method"),
    [(*route, method) for route in ROUTES for method in METHODS if method != route[0]],
)
def test_other_methods_are_405_before_the_credential(
    api: Api, offered: str, path: str, method: str
) -> None:
    result = api.call(method, path, authorization=None)

    assert result.status_code == 405
    assert result.headers["allow"] == offered
    if method != "HEAD":
        assert error_of(result)["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        " ",
        "Bearer",
        "Bearer ",
        "Basic {key}",
        "Bearer{key}",
        "Bearer\t{key}",
        "Bearer {key} x",
        "Bearer {key},",
        "Bearer {key},Bearer {key}",
        'Bearer "{key}"',
        "{key}",
        "Bearer {upper}",
        "Bearer {key}0",
        "Bearer " + "0" * 64,
        "Bearer é{key}",
    ],
)
def test_anything_but_a_known_key_is_401(
    api: Api, method: str, path: str, authorization: str | None
) -> None:
    if authorization is not None:
        authorization = authorization.format(key=api.key, upper=api.key.upper())
    result = api.call(method, path, SEND, authorization=authorization)

    assert outcome(result) == (401, "UNAUTHORIZED")
    assert result.headers["www-authenticate"] == "Bearer"


def test_the_front_learns_route_and_key_for_its_log(api: Api) -> None:
    headers = {"Authorization": f"Bearer {api.key}"}
    environ = falcon.testing.create_environ("/subscriptions/5", headers=headers, method="DELETE")
    environ |= {"RAW_URI": "/subscriptions/5", AUTHORIZATIONS: 1, REQUEST_ID: "abc"}
    list(api.app(environ, falcon.testing.StartResponseMock()))

    assert (environ[ROUTE], environ[KEY_ID]) == ("/subscriptions/{subscription_id}", 1)


def test_two_authorization_headers_are_401_even_when_one_is_right(api: Api) -> None:
    result = api.call("GET", "/health", environ={AUTHORIZATIONS: 2})

    assert outcome(result) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("scheme", ["bearer ", "BEARER ", "bEaReR   "])
def test_the_scheme_may_be_written_in_any_case(api: Api, scheme: str) -> None:
    authorization = scheme + api.key

    assert api.call("GET", "/subscriptions", authorization=authorization).status_code == 200


def test_a_database_that_is_gone_is_no_refusal_of_the_key(api: Api) -> None:
    api.path.rename(api.path.with_name("away"))

    assert outcome(api.call("GET", "/health")) == (503, "AUTH_UNAVAILABLE")


def test_a_database_that_breaks_is_no_refusal_of_the_key(api: Api) -> None:
    api.path.write_bytes(b"not a database".ljust(8192))

    assert outcome(api.call("GET", "/health")) == (503, "AUTH_UNAVAILABLE")


def test_the_body_is_not_read_before_the_key_is_known(api: Api) -> None:
    for authorization in (None, "Bearer " + "0" * 64):
        result = call_with_stream(api, Unreadable(), authorization)

        assert outcome(result) == (401, "UNAUTHORIZED")


def call_with_stream(
    api: Api,
    stream: io.BytesIO,
    authorization: str | None = "",
    *,
    length: str = "10",
    content_type: str = "application/json",
) -> falcon.testing.Result:
    environ = {"wsgi.input": stream, "CONTENT_LENGTH": length, "CONTENT_TYPE": content_type}
    return api.call("POST", "/send", authorization=authorization, environ=environ)


@pytest.mark.parametrize("length", ["65537", "99999999999999999999999999"])
def test_a_declared_length_over_the_limit_is_413_unread(api: Api, length: str) -> None:
    result = call_with_stream(api, Unreadable(), length=length, content_type="text/plain")

    assert outcome(result) == (413, "PAYLOAD_TOO_LARGE")


def test_a_body_that_is_not_wanted_is_bounded_too(api: Api) -> None:
    environ = {"wsgi.input": Unreadable(), "CONTENT_LENGTH": "65537"}

    result = api.call("GET", "/subscriptions", environ=environ)

    assert outcome(result) == (413, "PAYLOAD_TOO_LARGE")


def test_a_chunked_body_is_read_to_the_limit_only(api: Api) -> None:
    """The size is refused before the media type is looked at."""
    stream = io.BytesIO(b" " * 200_000)
    result = call_with_stream(api, stream, length="", content_type="text/plain")

    assert outcome(result) == (413, "PAYLOAD_TOO_LARGE")
    assert stream.tell() <= 65537


@pytest.mark.parametrize("length", ["65536", ""])
def test_a_body_of_exactly_the_limit_is_read(api: Api, length: str) -> None:
    body = b'{"chat_id":1,"text":"x"}'.ljust(65536)

    assert call_with_stream(api, io.BytesIO(body), length=length).status_code == 200


def test_a_body_that_drips_is_408(api: Api) -> None:
    assert outcome(call_with_stream(api, Dripping())) == (408, "REQUEST_TIMEOUT")


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/json; charset=UTF-8",
        'application/json ; charset="Utf-8"',
        "application/json;",
    ],
)
def test_json_in_utf8_is_the_media_type(api: Api, media_type: str) -> None:
    result = api.call("POST", "/send", SEND, headers={"Content-Type": media_type})

    assert result.status_code == 200


@pytest.mark.parametrize(
    "media_type",
    [
        "",
        "text/plain",
        "text/json",
        "application/jsonx",
        "application/json-patch+json",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/json; charset=utf-8; charset=latin-1",
        "application/json; charset=utf8",
        "application/json; profile=x",
        "application/json charset=utf-8",
        "application/json, text/plain",
        "*/*",
    ],
)
def test_any_other_media_type_is_415_before_the_body_is_judged(api: Api, media_type: str) -> None:
    result = api.call("POST", "/send", b"{", headers={"Content-Type": media_type})

    assert outcome(result) == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_a_compressed_body_is_415(api: Api) -> None:
    result = api.call("POST", "/send", b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    assert outcome(result) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "", "nonsense", "*/*;q=0"])
def test_errors_are_json_whatever_is_accepted(api: Api, accept: str) -> None:
    for path in ("/nothing", "/send"):
        assert error_of(api.call("GET", path, headers={"Accept": accept}))["code"]


def test_an_unforeseen_failure_is_500_and_tells_nothing(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.telegram.answer = RuntimeError("at https://api.telegram.org/bot1:SECRET/")
    result = api.call("POST", "/send", SEND)

    assert outcome(result) == (500, "INTERNAL_ERROR")
    assert "SECRET" not in result.text
    (line,) = logged(capsys)
    assert line["request_id"] == "abc"
    assert "RuntimeError" in line["traceback"]


def test_storage_that_fails_later_is_503(api: Api) -> None:
    """The key is known, and then the disk is read-only."""
    with api.pool.borrow() as database, database.read() as tx:
        tx.execute("PRAGMA query_only = ON")
    body = {"chat_id": 1, "callback_url": "http://h/"}

    assert outcome(api.call("POST", "/subscribe", body)) == (503, "STORAGE_UNAVAILABLE")


latin = st.text(st.characters(max_codepoint=255), max_size=40)
targets = st.sampled_from([path for _, path in ROUTES]) | latin


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(target=targets, query=latin, method=st.sampled_from(METHODS) | latin, authorization=latin)
def test_no_head_is_too_strange(
    api: Api, target: str, query: str, method: str, authorization: str
) -> None:
    """Whatever the front lets through, a caller without a key gets one of three answers."""
    environ = {
        "PATH_INFO": target,
        "RAW_URI": f"{target}?{query}",
        "QUERY_STRING": query,
        "HTTP_AUTHORIZATION": authorization,
    }
    result = api.call(method, "/", environ=environ)

    assert result.status_code in (401, 404, 405)

"""Which certificate authorities are trusted."""

import ssl
from pathlib import Path

import certifi
import pytest

from telegrammer import tls
from telegrammer.errors import ConfigurationError


def test_the_operators_file_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text(Path(certifi.where()).read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))

    assert tls.ca_file() == str(bundle)
    assert len(tls.client_context().get_ca_certs()) > 50


def test_an_operators_file_that_is_missing_is_no_reason_to_trust_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        tls.client_context()


def test_a_file_without_certificates_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    with pytest.raises(ConfigurationError, match=str(empty)):
        tls.client_context()


def test_servers_are_verified_and_no_keys_written_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever SSLKEYLOGFILE says: the bot's token goes over these connections."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))

    context = tls.client_context()

    assert not context.keylog_filename
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("value", [None, ""])
def test_without_one_there_is_always_a_bundle(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """The system's where there is one, else certifi's."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if value is not None:
        monkeypatch.setenv("SSL_CERT_FILE", value)

    assert Path(tls.ca_file()).is_file()
    assert tls.client_context().get_ca_certs()
    monkeypatch.setattr(tls, "_BUNDLES", ())
    assert Path(tls.ca_file()).is_file()

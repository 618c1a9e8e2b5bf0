"""Which certificate authorities we trust."""

import os
import ssl
from pathlib import Path
from typing import Final

import certifi

from telegrammer.errors import ConfigurationError

# Where distributions keep the system's bundle, beside the place OpenSSL was built for.
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, BSD
)


def ca_file() -> str:
    """Return the path of the CA bundle: ``SSL_CERT_FILE``, else the system's, else certifi's.

    Raises ``ConfigurationError`` when ``SSL_CERT_FILE`` names no file: falling back to
    another bundle would trust what the operator did not choose.
    """
    chosen = os.environ.get("SSL_CERT_FILE")
    if chosen:
        if not Path(chosen).is_file():
            raise ConfigurationError(f"SSL_CERT_FILE: no such file: {chosen}")
        return chosen
    system = (ssl.get_default_verify_paths().openssl_cafile, *_BUNDLES)
    return next((bundle for bundle in system if Path(bundle).is_file()), certifi.where())


Context = ssl.SSLContext


def client_context() -> Context:
    """Return a context that verifies a server's chain and name against ``ca_file()``.

    Raises ``ConfigurationError`` when that file cannot be used.
    """
    bundle = ca_file()
    # Not ``create_default_context``: that one also writes the keys of every connection into
    # the file SSLKEYLOGFILE, and the token goes over them.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(bundle)
    except OSError as error:  # not readable, or no certificates in it
        raise ConfigurationError(f"cannot use the CA file {bundle}: {error.strerror}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context

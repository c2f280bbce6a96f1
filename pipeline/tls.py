"""TLS to a running cluster: certificates from the options or from Dask's own configuration, checked before use."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transforms.errors import UserError

if TYPE_CHECKING:
    from distributed.security import Security

OPTIONS = {"ca_file": "--tls-ca-file", "cert": "--tls-cert", "key": "--tls-key"}
SETTINGS = {
    "ca_file": "distributed.comm.tls.ca-file",
    "cert": "distributed.comm.tls.client.cert",
    "key": "distributed.comm.tls.client.key",
}


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files as the user gave them; what is left out comes from Dask's configuration."""

    ca_file: str | None = None
    cert: str | None = None
    key: str | None = None

    def given(self) -> list[str]:
        """The options that were used."""
        return [option for name, option in OPTIONS.items() if getattr(self, name) is not None]


def complete_address(address: str, tls: TlsFiles) -> str:
    """The address with its scheme. One that does not go with the TLS options is refused."""
    scheme, separator, rest = address.strip().partition("://")
    if not separator:
        scheme, rest = "tls" if tls.given() else "tcp", scheme
    if tls.given() and scheme != "tls":
        raise UserError(
            f"{tls.given()[0]} does not go with the address {scheme}://{rest}, which is not encrypted: give "
            f"tls://{rest}, or leave the TLS options out"
        )
    return f"{scheme}://{rest}"


def make_security(address: str, tls: TlsFiles) -> Security:
    """What Dask needs to talk to the address. Certificates that are missing or cannot be used are refused."""
    from distributed.security import Security  # here, as options are read before Dask is loaded

    chosen = {"tls_ca_file": tls.ca_file, "tls_client_cert": tls.cert, "tls_client_key": tls.key}
    try:
        security = Security(**{name: value for name, value in chosen.items() if value is not None})
    except ValueError as error:
        raise UserError(f"Dask's configuration: {error}") from None
    found = {"ca_file": security.tls_ca_file, "cert": security.tls_client_cert, "key": security.tls_client_key}
    if address.startswith("tls://"):
        for name in ("ca_file", "cert"):
            if not found[name]:
                raise UserError(
                    f"{address} needs certificates, and {OPTIONS[name]} is missing: give --tls-ca-file, --tls-cert and "
                    f"--tls-key, or set {SETTINGS[name]} in Dask's configuration"
                )
        for name, value in found.items():
            if value and "\n" not in value:
                _check_readable(_source(tls, name), value)
        _check_usable(tls, found)
    return security


def _source(tls: TlsFiles, name: str) -> str:
    """Who named a file: an option, or a key of Dask's configuration."""
    return OPTIONS[name] if getattr(tls, name) is not None else SETTINGS[name]


def _check_readable(source: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UserError(f"{source} {path}: cannot read it: {error.strerror or type(error).__name__}") from None


def _check_usable(tls: TlsFiles, found: dict[str, str | None]) -> None:
    """Load the files as Dask will; a key with a passphrase would make OpenSSL ask for it on the terminal."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca_file, cert, key = found["ca_file"], found["cert"], found["key"]
    if ca_file and "\n" not in ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (ssl.SSLError, OSError):
            raise UserError(f"{_source(tls, 'ca_file')} {ca_file}: not a certificate in PEM form") from None
    if cert and "\n" not in cert and not (key and "\n" in key):
        where = f"{_source(tls, 'key')} {key}" if key else f"{_source(tls, 'cert')} {cert}"

        def refuse() -> str:
            raise UserError(f"{where}: the key has a passphrase, which nobody can be asked for: give one without")

        try:
            context.load_cert_chain(cert, key, password=refuse)
        except (ssl.SSLError, OSError) as error:
            if isinstance(error, ssl.SSLError) and error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
                raise UserError(f"{where}: not the key of the certificate {cert}") from None
            hint = "" if key else "; give its key with --tls-key"
            raise UserError(
                f"{_source(tls, 'cert')} {cert}: not a certificate with its key in PEM form{hint}"
            ) from None

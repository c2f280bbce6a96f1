"""A certificate authority of the test's own, and certificates signed by it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: the authority's certificate, one that it signed, and that one's key."""

    ca_file: Path
    cert: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """As the commands and `dask scheduler` take them."""
        return ("--tls-ca-file", str(self.ca_file), "--tls-cert", str(self.cert), "--tls-key", str(self.key))

    @property
    def key_lines(self) -> list[str]:
        """The secret itself."""
        return self.key.read_text().splitlines()[1:-1]


def make_certificates(folder: Path) -> Certificates:
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed: it comes with moto")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def name(text: str) -> x509.Name:  # type: ignore[name-defined]
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def sign(subject: str, public: object, signer: object, *, authority: bool) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name("test authority"), name(subject), public, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=2))
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
        pem: bytes = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return pem

    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    made.ca_file.write_bytes(sign("test authority", authority.public_key(), authority, authority=True))
    made.cert.write_bytes(sign("test member", own.public_key(), authority, authority=False))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    made.key.write_bytes(own.private_bytes(serialization.Encoding.PEM, form, plain))
    return made

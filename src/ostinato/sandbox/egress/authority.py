"""A certificate authority that only one sandbox trusts. Its key stays in the memory of this process.

It needs the package `cryptography`: `pip install -e '.[egress]'`.
"""

import datetime
import importlib.util
import ipaddress
import os
import ssl
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ostinato.sandbox.base import SandboxError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

NEEDED = "inspecting encrypted traffic needs the package cryptography: pip install 'ostinato[egress]'"
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=30)
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""The files of Debian, Fedora, SUSE and Alpine."""


def trusted() -> bytes:
    """Return the certificates that this machine trusts (or those of SSL_CERT_FILE), PEM; may be empty."""
    own = ssl.get_default_verify_paths().cafile
    bundle = next((Path(path) for path in (own, *_BUNDLES) if path and Path(path).is_file()), None)
    return bundle.read_bytes() if bundle is not None else b""


def available() -> bool:
    """Return True if the package `cryptography` is installed."""
    return importlib.util.find_spec("cryptography") is not None


@lru_cache(maxsize=4)
def _verifying(bundle: bytes) -> ssl.SSLContext:
    """Return a context that verifies servers. It is cached, since reading the certificates is slow."""
    return ssl.create_default_context(
        cadata=bundle.decode("ascii", errors="ignore")
    )  # comments may be in any language


class Authority:
    """An authority that signs a certificate for each host. Raises SandboxError without `cryptography`."""

    def __init__(self, sandbox: str) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as error:
            raise SandboxError(NEEDED) from error
        self._name = f"sandbox {sandbox[:12]}"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._root = self._make_root()
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.outside = _verifying(trusted())
        """The context of connections to the real hosts, which are verified as usual."""

    @property
    def certificate(self) -> bytes:
        """The root certificate, PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._root.public_bytes(Encoding.PEM)

    def inside(self, host: str) -> ssl.SSLContext:
        """Return the context of the server's side of a connection to `host`."""
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            chain = os.memfd_create("leaf", os.MFD_CLOEXEC)  # `ssl` reads only files: this one is in memory
            try:
                os.write(chain, self._leaf(host))
                context.load_cert_chain(f"/proc/self/fd/{chain}")
            finally:
                os.close(chain)
            self._contexts[host] = context
        return self._contexts[host]

    def _make_root(self) -> "x509.Certificate":
        from cryptography import x509

        usage = x509.KeyUsage(**{**_NO_USAGE, "key_cert_sign": True, "crl_sign": True})
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return self._signed(builder.add_extension(usage, critical=True))

    def _leaf(self, host: str) -> bytes:
        """Return certificate and key, PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        usage = x509.KeyUsage(**{**_NO_USAGE, "digital_signature": True})
        builder = self._builder(host, self._leaf_key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        server = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(server, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([_subject(host)]), critical=False)
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._signed(builder).public_bytes(serialization.Encoding.PEM) + key

    def _builder(self, name: str, key: "ec.EllipticCurvePublicKey") -> "x509.CertificateBuilder":
        from cryptography import x509

        now = datetime.datetime.now(datetime.UTC)
        common = x509.oid.NameOID.COMMON_NAME
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(common, name[:64])]))
            .issuer_name(x509.Name([x509.NameAttribute(common, self._name)]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _AFTER)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(authority, critical=False)
        )

    def _signed(self, builder: "x509.CertificateBuilder") -> "x509.Certificate":
        from cryptography.hazmat.primitives import hashes

        return builder.sign(self._key, hashes.SHA256())


_NO_USAGE = dict.fromkeys(
    (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    ),
    False,
)


def _subject(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

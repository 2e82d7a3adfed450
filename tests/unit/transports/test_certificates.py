"""Certificates that are replaced under a running broker, and warnings of those that expire."""

import calendar
import datetime
import errno
import logging
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.certificates import CertificateFiles, Certificates, expiries
from pybroker.transports.tls import TlsRules
from tests.unit.transports.certificates import Certificates as Pem

DAY = 86_400


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines so far, each with its level."""
    caplog.set_level(logging.INFO)
    return lambda: [f"{line.levelname} {line.getMessage()}" for line in caplog.records]


@pytest.fixture
def files(certificates: Pem, tmp_path: Path) -> CertificateFiles:
    """Certificate and key as copies that a test may replace."""
    for name in ("certificate", "key"):
        shutil.copy(getattr(certificates, name), tmp_path / name)
    return CertificateFiles(certificate=tmp_path / "certificate", key=tmp_path / "key")


def served(certificates: Certificates) -> bytes:
    """Return the certificate that a client is shown."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    ends = client.wrap_bio(incoming, outgoing), certificates.context().wrap_bio(outgoing, incoming, server_side=True)
    for end in (ends[0], ends[1], ends[0]):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = ends[0].getpeercert(binary_form=True)
    assert shown is not None
    return shown


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def replace(files: CertificateFiles, names: tuple[str, ...] = ("certificate", "key"), days: float = 365) -> None:
    """Put a new certificate and key in place of the former ones, as tools do: by renaming."""
    until = datetime.datetime.now(tz=datetime.UTC) + datetime.timedelta(days=days)
    issued = trustme.CA().issue_cert("localhost", not_after=until)
    for name in names:
        pem = issued.cert_chain_pems[0] if name == "certificate" else issued.private_key_pem
        pem.write_to_path(files.certificate.with_name("new"))
        files.certificate.with_name("new").replace(files.certificate.with_name(name))


def test_replaced_files_serve_new_connections(files: CertificateFiles, log: Callable[[], list[str]]) -> None:
    certificates = Certificates(files)
    former = served(certificates)
    assert former == der(files.certificate)
    replace(files)
    certificates.poll()
    assert served(certificates) == former, "the key may still be missing"
    certificates.poll()
    assert served(certificates) == der(files.certificate) != former
    certificates.poll()
    assert log() == [f"INFO certificates read again, for new connections: {files.certificate}"]


@pytest.mark.parametrize("names", [("certificate",), ("key",)])
def test_new_files_of_no_use_keep_the_former_ones(
    files: CertificateFiles, log: Callable[[], list[str]], names: tuple[str, ...]
) -> None:
    certificates = Certificates(files)
    former = served(certificates)
    replace(files, names)
    for _ in range(4):
        certificates.poll()
    assert served(certificates) == former
    (line,) = log()
    assert line.startswith("ERROR the new certificate or key cannot be used, the former one stays in use: tls_key: ")
    replace(files)
    certificates.poll()
    certificates.poll()
    assert served(certificates) == der(files.certificate)


def test_files_are_tried_again_when_their_rights_change(
    files: CertificateFiles, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(files)
    replace(files)
    with monkeypatch.context() as denied:  # to root, as which tests may run, nothing is unreadable
        denied.setattr(Path, "read_bytes", _deny)
        certificates.poll()
        certificates.poll()
    assert "Permission denied" in log()[0]
    assert files.key is not None
    files.key.chmod(0o640)
    certificates.poll()
    certificates.poll()
    assert served(certificates) == der(files.certificate)


def _deny(_path: Path) -> bytes:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_missing_file_keeps_the_former_one(files: CertificateFiles, log: Callable[[], list[str]]) -> None:
    certificates = Certificates(files)
    former = served(certificates)
    files.certificate.unlink()
    certificates.poll()
    certificates.poll()
    assert served(certificates) == former
    assert "No such file" in log()[0]


def test_a_reload_on_request_needs_no_second_look(files: CertificateFiles) -> None:
    certificates = Certificates(files)
    replace(files)
    certificates.reload()
    assert served(certificates) == der(files.certificate)


def test_versions_and_ciphers_stay_when_files_are_replaced(files: CertificateFiles) -> None:
    rules = TlsRules(version_min=ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    certificates = Certificates(files, rules)
    before = certificates.context()
    replace(files)
    certificates.reload()
    after = certificates.context()
    assert after is not before
    assert after.get_ciphers() == before.get_ciphers()
    assert len([each for each in after.get_ciphers() if each["protocol"] == "TLSv1.2"]) == 1
    certificates = Certificates(files, TlsRules(version_min=ssl.TLSVersion.TLSv1_3))
    certificates.reload()
    assert certificates.context().minimum_version == ssl.TLSVersion.TLSv1_3


def test_files_of_no_use_at_the_start_are_refused(files: CertificateFiles) -> None:
    replace(files, ("key",))
    with pytest.raises(ConfigError):
        Certificates(files)


@pytest.mark.parametrize(
    ("days", "expected"),
    [(400, None), (31, None), (29.5, "expires in 29 days, on"), (0.5, "expires in 0 days, on"), (-1, "expired on")],
)
def test_an_expiring_certificate_is_a_warning(
    files: CertificateFiles, log: Callable[[], list[str]], days: float, expected: str | None
) -> None:
    replace(files)
    certificates = Certificates(files)
    (expires_at,) = expiries(files.certificate.read_bytes())
    certificates.warn(expires_at - days * DAY)
    if expected is None:
        assert log() == []
    else:
        (line,) = log()
        assert line.startswith(f"WARNING a certificate in {files.certificate} (tls_certificate) {expected}")


def test_the_first_of_several_to_expire_is_named(
    files: CertificateFiles, certificates: Pem, log: Callable[[], list[str]]
) -> None:
    replace(files, days=3)
    chain = files.certificate.read_bytes() + certificates.authority.read_bytes()
    files.certificate.write_bytes(chain)
    used = Certificates(
        CertificateFiles(certificate=files.certificate, key=files.key, client_ca=certificates.authority)
    )
    assert len(expiries(chain)) == 2
    used.warn(min(expiries(chain)) - DAY)
    (line,) = log()
    assert "expires in 1 days" in line


def test_dates_are_those_that_openssl_reads(certificates: Pem, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=certificates.authority)
    (authority,) = context.get_ca_certs()
    assert expiries(certificates.authority.read_bytes()) == [ssl.cert_time_to_seconds(str(authority["notAfter"]))]


@pytest.mark.parametrize("year", [1999, 2049, 2050, 9999])
def test_dates_of_both_forms_are_read(year: int) -> None:
    until = datetime.datetime(year, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
    issued = trustme.CA().issue_cert("x", not_before=until - datetime.timedelta(days=1), not_after=until)
    assert expiries(issued.cert_chain_pems[0].bytes()) == [calendar.timegm((year, 12, 31, 23, 59, 59))]


def test_a_file_without_a_date_is_a_warning(files: CertificateFiles, log: Callable[[], list[str]]) -> None:
    certificates = Certificates(files)
    files.certificate.write_text("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
    certificates.warn(0)
    (line,) = log()
    assert line.startswith(f"WARNING cannot read when the certificates in {files.certificate} (tls_certificate) expire")

"""Where a member finds the API server of Kubernetes: the files of a pod, and kubeconfigs."""

import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.http_calls import HttpAddress
from pybroker.locks.election.kubernetes_access import KubernetesAccess, find_access

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The files of a service account."""
    for name, text in (("token", "first.s3cret\n"), ("ca.crt", "an authority"), ("namespace", "shop")):
        (tmp_path / name).write_text(text)
    return tmp_path


class Kubeconfig:
    """A file that `kubectl config view --raw --minify --flatten --output json` could have written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cluster: dict[str, Any] = {"server": "https://10.0.0.4:6443"}
        self.context: dict[str, Any] = {"cluster": "kind", "user": "admin", "namespace": "shop"}
        self.user: dict[str, Any] = {"token": "a.s3cret"}

    def access(self, text: str = "") -> KubernetesAccess:
        """Write it, and read the access from it."""
        whole = {
            "kind": "Config",
            "apiVersion": "v1",
            "current-context": "shop@kind",
            "clusters": [{"name": "other", "cluster": {}}, {"name": "kind", "cluster": self.cluster}],
            "contexts": [{"name": "shop@kind", "context": self.context}],
            "users": [{"name": "admin", "user": self.user}],
        }
        self._path.write_text(text or json.dumps(whole))
        return find_access({**POD, "KUBECONFIG": str(self._path)}, self._path.parent / "absent")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Kubeconfig:
    return Kubeconfig(tmp_path / "config")


# ---------------------------------------------------------------- in a pod


def test_pod_has_the_files_of_its_service_account(account: Path) -> None:
    assert find_access(POD, account) == KubernetesAccess(
        address=HttpAddress("10.96.0.1", 6443), namespace="shop", authority=b"an authority", token="first.s3cret"
    )
    assert find_access({"KUBERNETES_SERVICE_HOST": "fd00::1"}, account).address == HttpAddress("fd00::1", 443)


def test_rotated_token_is_read_again_and_keeps_the_connection(account: Path) -> None:
    before = find_access(POD, account)
    (account / "token").write_text("second.s3cret")
    after = find_access(POD, account)
    assert after.token == "second.s3cret"
    assert after.has_connection_of(before)
    (account / "ca.crt").write_text("another authority")
    assert not find_access(POD, account).has_connection_of(before)


def test_access_does_not_show_secrets(account: Path, kubeconfig: Kubeconfig) -> None:
    assert "s3cret" not in repr(find_access(POD, account))
    kubeconfig.user |= {"client-key-data": b64encode(b"s3cret").decode()}
    assert "s3cret" not in repr(kubeconfig.access())


@pytest.mark.parametrize(
    ("environment", "files", "reason"),
    [
        ({}, {}, "this process is in no pod"),
        ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "x"}, {}, "KUBERNETES_SERVICE_PORT is no number"),
        (POD, {"token": None}, "token cannot be read"),
        (POD, {"ca.crt": None}, "ca.crt cannot be read"),
        (POD, {"namespace": None}, "namespace cannot be read"),
        (POD, {"namespace": "../kube-system"}, "the namespace is no name of one"),
        (POD, {"token": "two s3cret words"}, "the token is none"),
        (POD, {"token": "a s3cret\r\nX-Header: yes"}, "the token is none"),
        (POD, {"token": "s3crét"}, "the token is none"),
    ],
)
def test_pod_without_usable_access_is_refused(
    account: Path, environment: Mapping[str, str], files: Mapping[str, str | None], reason: str
) -> None:
    for name, text in files.items():
        if text is None:
            (account / name).unlink()
        else:
            (account / name).write_text(text)
    with pytest.raises(ConfigError, match=reason) as caught:
        find_access(environment, account)
    assert "s3cret" not in str(caught.value)


# ---------------------------------------------------------------- kubeconfig


def test_kubeconfig_comes_before_the_pod(kubeconfig: Kubeconfig) -> None:
    assert kubeconfig.access() == KubernetesAccess(
        address=HttpAddress("10.0.0.4", 6443), namespace="shop", token="a.s3cret"
    )


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://api.example", (True, HttpAddress("api.example", 443), "")),
        ("https://[fd00::1]:6443/", (True, HttpAddress("fd00::1", 6443), "")),
        ("https://rancher.example/k8s/clusters/c-1", (True, HttpAddress("rancher.example", 443), "/k8s/clusters/c-1")),
        ("http://127.0.0.1:8001", (False, HttpAddress("127.0.0.1", 8001), "")),
    ],
)
def test_server_has_address_and_path(
    kubeconfig: Kubeconfig, server: str, expected: tuple[bool, HttpAddress, str]
) -> None:
    kubeconfig.cluster["server"] = server
    found = kubeconfig.access()
    assert (found.is_tls, found.address, found.path) == expected


def test_namespace_and_server_name_are_optional(kubeconfig: Kubeconfig) -> None:
    del kubeconfig.context["namespace"]
    kubeconfig.cluster["tls-server-name"] = "kubernetes"
    found = kubeconfig.access()
    assert (found.namespace, found.server_name) == ("default", "kubernetes")


def test_files_are_relative_to_the_kubeconfig(kubeconfig: Kubeconfig, tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    for name in ("ca.crt", "client.crt", "client.key", "token"):
        (tmp_path / "pki" / name).write_text(f"content of {name.replace('.', '-')}".replace(" ", "-"))
    kubeconfig.cluster["certificate-authority"] = "pki/ca.crt"
    kubeconfig.user = {"client-certificate": "pki/client.crt", "client-key": str(tmp_path / "pki" / "client.key")}
    kubeconfig.user |= {"tokenFile": "pki/token", "token": "not this one"}
    found = kubeconfig.access()
    assert (found.authority, found.certificate) == (b"content-of-ca-crt", b"content-of-client-crt")
    assert (found.key, found.token) == (b"content-of-client-key", "content-of-token")


def test_certificates_in_the_kubeconfig_are_used(kubeconfig: Kubeconfig) -> None:
    authority, client = trustme.CA(), trustme.CA().issue_cert("member")
    kubeconfig.cluster["certificate-authority-data"] = b64encode(authority.cert_pem.bytes()).decode()
    chain = client.cert_chain_pems[0].bytes()
    kubeconfig.user = {"client-certificate-data": b64encode(chain).decode()}
    kubeconfig.user["client-key-data"] = b64encode(client.private_key_pem.bytes()).decode()
    access = kubeconfig.access()
    assert (access.authority, access.certificate) == (authority.cert_pem.bytes(), chain)
    context = access.tls()
    assert context is not None
    assert len(context.get_ca_certs()) == 1, "no other authority than the cluster's is trusted"
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_plain_http_has_no_tls(kubeconfig: Kubeconfig) -> None:
    kubeconfig.cluster["server"] = "http://127.0.0.1:8001"
    assert kubeconfig.access().tls() is None


@pytest.mark.parametrize("field", ["authority", "certificate"])
def test_certificate_that_is_none_is_refused(kubeconfig: Kubeconfig, field: str) -> None:
    part, name = (kubeconfig.cluster, "certificate-authority-data") if field == "authority" else (kubeconfig.user, "")
    part[name or "client-certificate-data"] = b64encode(b"no certificate").decode()
    with pytest.raises(ConfigError, match="a certificate or its key cannot be used"):
        kubeconfig.access().tls()


@pytest.mark.parametrize(
    ("part", "changes", "reason"),
    [
        ("cluster", {"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify of its cluster: TLS is always"),
        ("cluster", {"proxy-url": "http://proxy:3128"}, "proxy-url of its cluster: no proxy"),
        ("cluster", {"server": None}, "server of its cluster is not https://HOST:PORT"),
        ("cluster", {"server": "api.example:6443"}, "server of its cluster is not"),
        ("cluster", {"server": "ftp://api.example"}, "server of its cluster is not"),
        ("cluster", {"server": "https://api.example:port"}, "server of its cluster is not"),
        ("cluster", {"server": "https://user:s3cret@api.example"}, "server of its cluster is not"),
        ("cluster", {"server": 7}, "server of its cluster is no text"),
        ("cluster", {"certificate-authority": "absent.crt"}, "absent.crt cannot be read"),
        ("cluster", {"certificate-authority-data": "no base64!"}, "certificate-authority-data of its cluster is no"),
        ("context", {"user": "nobody"}, "the kubeconfig has no user of the name 'nobody'"),
        ("context", {"cluster": "kund"}, "the kubeconfig has no cluster of the name 'kund'"),
        ("context", {"namespace": "Shop"}, "the namespace is no name of one"),
        ("user", {"exec": {"command": "aws"}}, "exec of its user: no program is run"),
        ("user", {"auth-provider": {"name": "gcp"}}, "auth-provider of its user: no program is run"),
        ("user", {"as": "admin"}, "as of its user: no other user"),
        ("user", {"tokenFile": "absent"}, "absent cannot be read"),
    ],
)
def test_kubeconfig_that_cannot_be_used_is_refused(
    kubeconfig: Kubeconfig, part: str, changes: Mapping[str, Any], reason: str
) -> None:
    getattr(kubeconfig, part).update(changes)
    with pytest.raises(ConfigError, match=reason) as caught:
        kubeconfig.access()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("apiVersion: v1\nkind: Config\n", "is no JSON object; write it by kubectl config view"),
        ("[]", "is no JSON object"),
        ("{}", "has no context of the name 'None'"),
        ('{"current-context": "x", "contexts": {"x": 1}}', "has no context of the name 'x'"),
        ('{"current-context": "x", "contexts": [{"name": "x"}]}', "has no context of the name 'x'"),
    ],
)
def test_file_that_is_no_json_kubeconfig_is_refused(kubeconfig: Kubeconfig, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        kubeconfig.access(text)


def test_kubeconfig_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent cannot be read: No such file"):
        find_access({"KUBECONFIG": str(tmp_path / "absent")})

"""The URL of a register in Kubernetes."""

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.kubernetes_url import KubernetesUrl


@pytest.mark.parametrize(
    ("url", "namespace", "cluster"),
    [
        ("kubernetes://orders", "", "orders"),
        ("kubernetes://shop/orders", "shop", "orders"),
        ("kubernetes://shop-1/orders.eu-1", "shop-1", "orders.eu-1"),
        ("kubernetes://" + "n" * 63 + "/" + "x" * 63, "n" * 63, "x" * 63),
    ],
)
def test_url_has_namespace_and_name(url: str, namespace: str, cluster: str) -> None:
    found = KubernetesUrl.parse(url)
    assert found == KubernetesUrl(namespace=namespace, cluster=cluster)
    assert str(found) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "orders",
        "kubernetes://",
        "kubernetes:///orders",
        "kubernetes://shop/",
        "kubernetes://shop/orders/",
        "kubernetes://api.example:6443/shop/orders",
        "kubernetes://Orders",
        "kubernetes://orders?watch=1",
        "kubernetes://orders#1",
        "kubernetes://../orders",
        "kubernetes://shop/..",
        "kubernetes://shop.eu/orders",
        "kubernetes://or%2fders",
        "kubernetes://-orders",
        "kubernetes://orders\n",
        "kubernetes://" + "n" * 64 + "/orders",
        "kubernetes://" + "x." * 127,
    ],
)
def test_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^replica: this is not the URL of a register in Kubernetes"):
        KubernetesUrl.parse(url, "replica")

"""A replicated cluster each of whose links, between members and to the election store, is a bad network at will."""

from pathlib import Path

from tests.etcd_cluster import EtcdCluster
from tests.integration.link_proxy import LinkProxy
from tests.integration.replicated_register import NAME, ObservedCluster


class LinkedCluster(ObservedCluster):
    """Members that reach each other, and the first node of etcd, through proxies. Clients do not.

    Attributes:
        to_store: each member's link to the election store.
        to_member: the link of the others to a member's stream, by the name of the one that is dialed.
    """

    def __init__(self, etcd: EtcdCluster, directory: Path, names: str = "ab", *extra: str) -> None:
        """Start all members, the first one first; see `ReplicatedCluster`."""
        self.to_store = {name: LinkProxy(etcd.nodes[0].port) for name in names}
        self.to_member: dict[str, LinkProxy] = {}
        try:
            super().__init__(etcd, directory, names, *extra)
        except BaseException:
            self._close_links()
            raise

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._close_links()

    def _close_links(self) -> None:
        for link in (*self.to_store.values(), *self.to_member.values()):
            link.close()

    def election(self, name: str) -> str:
        return f"etcd://127.0.0.1:{self.to_store[name].port}/{NAME}"

    def stream(self, name: str) -> str:
        if name not in self.to_member:
            self.to_member[name] = LinkProxy(self._ports[name][2])
        return f"127.0.0.1:{self.to_member[name].port}"

"""The code of docs/client.md runs, block after block, against a pair of brokers."""

import logging
import re
from pathlib import Path

import pytest

from pybroker.testing import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAIR = "failover:(tcp://a:61616,tcp://b:61616)"


def test_every_block_runs(caplog: pytest.LogCaptureFixture) -> None:
    page = PAGE.read_text()
    blocks = BLOCK.findall(page)
    assert len(blocks) >= 8
    names: dict[str, object] = {}
    with Cluster(2) as cluster, caplog.at_level(logging.INFO, "pybroker.client"):
        for block in blocks:
            line = page[: page.index(block)].count("\n")
            code = compile("\n" * line + block.replace(PAIR, cluster.uri), str(PAGE), "exec")
            exec(code, names)
    assert "connected to" in caplog.text

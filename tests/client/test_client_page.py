"""The code of docs/client.md runs, each block by itself, against a pair of brokers."""

import logging
import re
from pathlib import Path

import pytest

from pybroker.testing import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAIR = "failover:(tcp://127.0.0.1:61616,tcp://127.0.0.1:61626)"


def test_each_block_runs_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    page = PAGE.read_text()
    blocks = BLOCK.findall(page)
    assert len(blocks) >= 8
    with Cluster(2) as cluster, caplog.at_level(logging.INFO, "pybroker.client"):
        for block in blocks:
            line = page[: page.index(block)].count("\n")
            assert PAIR in block or "UnknownOption" in block
            code = compile("\n" * line + block.replace(PAIR, cluster.uri), str(PAGE), "exec")
            exec(code, {})  # what a block needs it imports: people copy one
    assert "connected to" in caplog.text

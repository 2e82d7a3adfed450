"""The examples of an order pipeline, with the master killed while they run."""

import subprocess
import sys
from pathlib import Path

import pytest

from pybroker.client import connect
from pybroker.testing import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 30.0


@pytest.mark.parametrize("name", ["orders_pipeline.py", "orders_pipeline_async.py"])
def test_every_order_is_invoiced_once(name: str) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    with (
        Cluster(2) as cluster,
        connect(cluster.uri, timeout=PATIENCE) as connection,
        connection.consumer("queue://ORDERS", ack="individual", prefetch=1) as orders,
        subprocess.Popen(
            [*command, cluster.uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as pipeline,
    ):
        try:
            assert pipeline.stdout is not None
            lines = [pipeline.stdout.readline()]
            orders.receive(PATIENCE)  # without it the pipeline cannot end before the kill
            cluster.kill9("master")
            orders.close()
            output, errors = pipeline.communicate(timeout=60)
        finally:
            pipeline.kill()
    lines += output.splitlines()
    assert lines[-1] == "100 orders, 100 invoices", errors
    assert sum("interrupted" in line for line in lines) == 1
    assert sum("resumed" in line for line in lines) == 1
    assert pipeline.returncode == 0
    assert "twice" not in output

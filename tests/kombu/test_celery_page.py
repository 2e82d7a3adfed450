"""The program of docs/celery.md runs on a pair, as an application of Celery."""

import subprocess
import sys

from pybroker.testing import Cluster
from tests.kombu.workers import EXAMPLE, environment, worker
from tests.pages import block


def test_the_page_shows_the_example():
    assert block("docs/celery.md", "python", "from celery import") == (EXAMPLE / "shop.py").read_text()


def test_the_example_computes_a_price_after_a_kill(tmp_path):
    call = block("docs/celery.md", "python", "from shop import")
    with Cluster(2) as cluster:
        url = f"activemq+{cluster.uri}"
        with worker("shop", EXAMPLE, url, tmp_path / "worker.log", "--concurrency", "1"):

            def price() -> str:
                command = [sys.executable, "-c", call]
                done = subprocess.run(
                    command, cwd=EXAMPLE, env=environment(url), capture_output=True, text=True, timeout=90, check=False
                )
                assert done.returncode == 0, done.stderr + (tmp_path / "worker.log").read_text()
                return done.stdout

            assert price() == "300\n"
            cluster.wait_master()
            cluster.kill9("master")
            assert price() == "300\n"
    log = (tmp_path / "worker.log").read_text()
    assert "resumed on" in log
    assert "ERROR" not in log
    assert "Traceback" not in log

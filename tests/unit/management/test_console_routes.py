"""The files of the console: which there are, how browsers get them, and what they must not have."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from pybroker.management import console_routes
from tests.unit.management.simulated import site

FOLDER = Path(console_routes.__file__).parent / "console"
MODULES = [name for name in console_routes.FILES if name.endswith(".js")]


def ask(
    target: str, method: str = "GET", *, has_users: bool = False, **headers: str
) -> tuple[int, dict[str, str], str]:
    async def run() -> tuple[int, dict[str, str], str]:
        async with site({}, has_users=has_users) as there:
            return await there.ask_raw(target, method, **headers)

    return asyncio.run(run())


def text(name: str) -> str:
    return console_routes.FILES[name].content.decode()


def test_every_file_of_the_folder_is_served() -> None:
    assert set(console_routes.FILES) == {path.name for path in FOLDER.iterdir()}

    async def run() -> None:
        async with site({}) as there:
            for name, each in console_routes.FILES.items():
                status, headers, content = await there.ask_raw(
                    f"/console/{'' if name == console_routes.PAGE else name}"
                )
                assert (status, headers["content-type"]) == (200, each.content_type), name
                assert content.encode() == each.content

    asyncio.run(run())


def test_browsers_ask_whether_a_file_is_the_same() -> None:
    status, headers, _ = ask("/console/main.js")
    assert (status, headers["cache-control"]) == (200, "no-cache")
    etag = headers["etag"]
    status, headers, content = ask("/console/main.js", If_None_Match=f'"other", W/{etag}')
    assert (status, headers["etag"], headers["cache-control"], content) == (304, etag, "no-cache", "")
    assert ask("/console/main.js", If_None_Match='"other"')[0] == 200
    assert ask("/console/main.js", "HEAD")[::2] == (200, "")


def test_only_scripts_and_styles_of_the_site_may_run() -> None:
    _, headers, _ = ask("/console/")
    policy = headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")


def test_the_page_needs_a_login_and_its_parts_do_not() -> None:
    status, headers, _ = ask("/console/", has_users=True)
    assert status == 401
    assert headers["www-authenticate"].startswith("Basic ")
    assert ask("/console/main.js", has_users=True)[0] == 200
    assert ask("/", has_users=True)[0] == 307


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/", "console/"),
        ("/console", "console/"),
        ("/admin", "console/"),
        ("/admin/", "../console/"),
        ("/admin/queues.jsp", "../console/#/queues"),
    ],
)
def test_other_addresses_lead_to_the_console(path: str, target: str) -> None:
    status, headers, _ = ask(path)
    assert (status, headers["location"]) == (307, target)


@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing.js",
        "/console/index.html",
        "/console/../rest.py",
        "/console/%2e%2e/rest.py",
        "/console/..%2frest.py",
        "/console//etc/passwd",
        "/console/main.js/",
        "/console/%00",
    ],
)
def test_no_path_leads_to_another_file(path: str) -> None:
    status, _, content = ask(path)
    assert status == 404
    assert content.startswith('{"error"')


def test_the_console_is_not_in_the_description_of_rest() -> None:
    async def run() -> Any:
        async with site({}) as there:
            return await there.ask("/api/v1/openapi.json")

    assert not [path for path in asyncio.run(run())[1]["paths"] if "console" in path or path == "/"]


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    page = text(console_routes.PAGE)
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert set(addresses) == set(console_routes.FILES) - {console_routes.PAGE}, "a browser asks for all of them at once"


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_read_as_html_or_as_a_program(name: str) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    assert re.findall(forbidden, text(name)) == []
    assert re.findall(r"https?://(?!www\.w3\.org/)", text(name)) == [], "the console uses no other site"


@pytest.mark.parametrize("name", MODULES)
def test_every_import_is_a_file_that_has_the_name(name: str) -> None:
    source = text(name)
    for names, target in re.findall(r"import \{([^}]+)\} from \"\./([^\"]+)\"", source):
        exported = set(re.findall(r"export (?:async )?(?:function|const|class) (\w+)", text(target)))
        wanted = {each.strip().split(" as ")[0] for each in names.split(",") if each.strip()}
        assert wanted <= exported, target
        body = re.sub(r"import \{[^}]+\} from [^;]+;", "", source)
        assert [each for each in wanted if not re.search(rf"\b{each}\b", body)] == [], f"{name} imports it for nothing"


def test_the_page_cannot_be_posted_to() -> None:
    assert ask("/console/", "POST")[0] == 405

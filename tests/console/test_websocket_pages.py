"""Scripts of web pages, in a real browser, use STOMP over WebSocket if the origin of their page may connect."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.integration.cluster import BrokerProcess, free_port

CONVERSATION = """
async (url) => new Promise((resolve) => {
  const socket = new WebSocket(url, ["v10.stomp", "v11.stomp", "v12.stomp"]);
  const messages = [];
  const send = (frame) => socket.send(frame + "\\0");
  socket.onopen = () => send("CONNECT\\naccept-version:1.2\\nhost:h\\n\\n");
  socket.onmessage = (event) => {
    messages.push(event.data.split("\\n\\n")[1].split("\\0")[0]);
    if (messages.length === 1) {
      send("SUBSCRIBE\\nid:1\\ndestination:/queue/PAGE\\n\\n");
      send("SEND\\ndestination:/queue/PAGE\\n\\nhellö 🎉");
    } else {
      send("DISCONNECT\\n\\n");
    }
  };
  socket.onclose = (event) => resolve({
    messages, code: event.code, clean: event.wasClean, protocol: socket.protocol, extensions: socket.extensions,
  });
})
"""


class BlankPage(http.server.BaseHTTPRequestHandler):
    """A site of one page without content."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""


@pytest.fixture
def site() -> Iterator[int]:
    """The port of a web server, which has both names of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BlankPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def talk(browser: Browser, page_url: str, url: str) -> Any:
    page = browser.new_page()
    try:
        page.goto(page_url)
        return page.evaluate(CONVERSATION, url)
    finally:
        page.close()


def test_page_uses_a_broker_that_its_origin_may(browser: Browser, site: int) -> None:
    port = free_port()
    broker = BrokerProcess("memory:", name="a", port=free_port(), extra=("--ws", str(port)))
    try:
        broker.wait_for("listening on")
        url = f"ws://127.0.0.1:{port}/stomp"
        assert talk(browser, f"http://127.0.0.1:{site}/", url) == {
            "messages": ["", "hellö 🎉"],
            "code": 1000,
            "clean": True,
            "protocol": "v12.stomp",
            "extensions": "",
        }
        refused = talk(browser, f"http://localhost:{site}/", url)
        assert (refused["messages"], refused["code"]) == ([], 1006)
        broker.wait_for(f"refused: pages of http://localhost:{site} may not connect")
    finally:
        broker.close()

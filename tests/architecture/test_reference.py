"""The reference pages agree with the code."""

import pytest

from pybroker.broker.app.reference import pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_reference_page_is_up_to_date(name, root):
    page = (root / "docs" / name).read_text(encoding="utf-8")
    assert page == pages()[name], "run: python -m pybroker.broker.app.reference docs"

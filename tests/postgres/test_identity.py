"""The broker's id in its database: made once, under the epoch's lock, in a table that older databases get."""

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.identity import BrokerIdentity
from tests.postgres.conftest import JdbcLives


def opened(database, number, name="localhost", **options):
    lives = JdbcLives(database, identity=BrokerIdentity(f"ID:{number}", name), **options)
    return lives, lives.open().broker_id


@pytest.mark.parametrize("end", ["close", "crash"])
def test_each_master_of_a_database_has_the_first_ones_id(postgres_database, end):
    for number in range(3):
        lives, broker_id = opened(postgres_database, number)
        assert broker_id == "ID:0"
        getattr(lives, end)()


def test_an_older_database_gets_the_table_if_allowed(postgres_database):
    lives, _ = opened(postgres_database, 0)
    lives.close()
    postgres_database.sql("DROP TABLE pybroker_broker")
    with pytest.raises(StoreUnavailable, match="there is no table pybroker_broker"):
        opened(postgres_database, 1, may_create=False)
    lives, broker_id = opened(postgres_database, 2)
    assert broker_id == "ID:2"
    lives.close()
    lives, broker_id = opened(postgres_database, 3, may_create=False)
    assert broker_id == "ID:2"
    lives.close()


def test_another_broker_name_is_logged_once_and_keeps_the_id(postgres_database, caplog):
    for number, name in enumerate(("a", "b's", "b's")):
        lives, broker_id = opened(postgres_database, number, name)
        assert broker_id == "ID:0"
        lives.close()
    assert caplog.text.count("was called a and is called b's now") == 1
    assert postgres_database.sql("SELECT broker_id, broker_name FROM pybroker_broker") == "ID:0|b's"

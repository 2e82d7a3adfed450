"""The store in a PostgreSQL database: ActiveMQ's JDBC tables, with the broker's own tables beside them."""

"""A journal as a table: a scalar and a vectorised decoder from data files to Arrow. Needs numpy and pyarrow."""

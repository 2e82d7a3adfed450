from pybroker.client import aio as aio
from pybroker.client.sync import connect as connect

__version__: str

"""What clients that are logged in notice of strangers who cannot log in: `python -m benchmarks.flood`.

```text
runner    __main__                      starts the others, samples the broker's memory, counts its descriptors
strangers strangers                     one kind of flood, or all at a time
client    benchmarks.hostile.bystander  logs in, sends and receives, and records each wait
```
"""

"""Settings of members and workers, each said once: as a dataclass field with metadata.

`configs.py` and `process.py` say them; checks (`reading.py`), typing (`typed.py`) and the page of
member settings are made from that.
"""

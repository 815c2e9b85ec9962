"""Random faults in nights that are under way, and what must hold after each of them.

`python -m tests.chaos --faults 200` is the whole of it; `tests/chaos/test_chaos.py` a bounded part.
"""

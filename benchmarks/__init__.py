"""Speed and size of MEAH, each measured beside a yardstick in the same run: `python -m benchmarks [NAME…]`."""

from __future__ import annotations

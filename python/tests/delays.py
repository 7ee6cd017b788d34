"""Imported into the processes of a session: messages between them are late, at random, but keep their order."""

import os
import random
import time

from ray import _wire

_chosen = {}  # by process, since it may be a fork


def late():
    dice = _chosen.get(os.getpid())
    if dice is None:
        dice = _chosen[os.getpid()] = random.Random(f"{os.environ['RAY_TEST_SEED']} {len(_chosen)} {os.getpid()}")
    if dice.random() < 0.1:
        time.sleep(dice.choice([0.001, 0.005, 0.02, 0.05]))


def _delayed(do):
    def later(self, *args, **kwargs):
        late()
        return do(self, *args, **kwargs)

    return later


for _name in ("send_bytes", "_event"):
    setattr(_wire.Connection, _name, _delayed(getattr(_wire.Connection, _name)))

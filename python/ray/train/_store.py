"""The directory of a run, which its ranks and the program share."""

import json
import os
import shutil

from ._config import Checkpoint, CheckpointConfig


class Store:
    def __init__(self, path):
        self.path = os.path.abspath(path)
        try:
            with open(self._join("checkpoints.json")) as f:
                self.kept = json.load(f)
        except FileNotFoundError:
            self.kept = {"count": 0, "latest": None, "checkpoints": []}

    def _join(self, name):
        return os.path.join(self.path, name)

    def directory(self, number):
        return self._join(f"checkpoint_{number:06d}")

    def tidy(self):
        """Drops checkpoints that an attempt had not finished when it ended."""
        known = {c["name"] for c in self.kept["checkpoints"]}
        for name in os.listdir(self.path):
            if name.startswith("checkpoint_") and name not in known:
                shutil.rmtree(self._join(name))

    def add(self, number, metrics, config: CheckpointConfig):
        """Adds a checkpoint, and drops surplus checkpoints: the worst or the oldest, but never the
        latest.
        """
        name, kept = os.path.basename(self.directory(number)), self.kept["checkpoints"]
        kept.append({"name": name, "metrics": metrics})
        attribute = config.checkpoint_score_attribute
        if attribute is not None:
            sign = 1 if config.checkpoint_score_order == "max" else -1
            kept.sort(key=lambda c: sign * c["metrics"][attribute] if attribute in c["metrics"] else float("-inf"))
        dropped = [c for c in kept[:-config.num_to_keep] if c["name"] != name] if config.num_to_keep else []
        self.kept = {"count": number, "latest": name, "checkpoints": [c for c in kept if c not in dropped]}
        with open(self._join("checkpoints.json.new"), "w") as f:
            json.dump(self.kept, f)
            f.flush()
            os.fsync(f.fileno())
        os.rename(f.name, self._join("checkpoints.json"))
        for c in dropped:
            shutil.rmtree(self._join(c["name"]))

    def latest(self):
        return Checkpoint(self._join(self.kept["latest"])) if self.kept["latest"] else None

    def result(self):
        pairs = [(Checkpoint(self._join(c["name"])), c["metrics"]) for c in self.kept["checkpoints"]]
        latest = self.latest()
        return {"metrics": next((m for c, m in pairs if c == latest), None), "checkpoint": latest, "best_checkpoints": pairs}

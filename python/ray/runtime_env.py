"""ray.runtime_env."""

import sys

sys.modules[__name__ + ".runtime_env"] = sys.modules[__name__]


class RuntimeEnv(dict):
    """A runtime_env: a dictionary of its fields."""

    def __init__(self, **fields):
        super().__init__((name, value) for name, value in fields.items() if value is not None)

    def to_dict(self):
        return dict(self)


class RuntimeEnvConfig(dict):
    """The field config of a runtime_env, which changes nothing."""

    def __init__(self, **fields):
        super().__init__(fields)

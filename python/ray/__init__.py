"""Ray's names on golaunch: programs written for a Ray cluster run on golaunch's worker groups.

docs/from-ray.md of golaunch lists what is served. Whatever is not raises NotImplementedError, which
says what to use instead.
"""

import importlib.util
import os
import sys

__golaunch__ = True


def _refuse_beside_ray():
    """Two packages named ray in one directory would be a mixture of both."""
    home = os.path.dirname(os.path.abspath(__file__))
    if os.path.exists(os.path.join(home, "_raylet.so")) or os.path.exists(os.path.join(home, "_raylet.pyx")):
        raise ImportError(f"golaunch-ray and ray are both installed in {os.path.dirname(home)}, and both are the module ray: run `pip uninstall ray golaunch-ray`, "
                          "and install one of them again")
    for path in sys.path:
        if path and os.path.isdir(path):
            other = os.path.join(path, "ray", "_raylet.so")
            if os.path.exists(other):
                raise ImportError(f"golaunch-ray ({home}) and ray ({os.path.dirname(other)}) are both installed, and both are the module ray: uninstall one of them")


_refuse_beside_ray()

for _needed in ("cloudpickle", "golaunch"):
    if importlib.util.find_spec(_needed) is None:
        raise ImportError(f"golaunch-ray needs {_needed}, which is not installed: pip install {_needed}")

import cloudpickle  # noqa: E402

from . import exceptions  # noqa: E402, F401
from ._api import (  # noqa: E402, F401
    available_resources, cancel, cluster_resources, get, get_gpu_ids, is_initialized, kill, nodes, put, remote, timeline, wait,
)
from ._generator import DynamicObjectRefGenerator, ObjectRefGenerator  # noqa: E402, F401
from ._ids import ActorClassID, ActorID, ClusterID, FunctionID, JobID, NodeID, PlacementGroupID, TaskID, UniqueID, WorkerID  # noqa: E402, F401
from ._objects import ObjectID, ObjectRef  # noqa: E402, F401
from ._session import init, shutdown  # noqa: E402, F401
from ._unserved import refuse  # noqa: E402
from .actor import get_actor, method  # noqa: E402, F401
from .runtime_context import get_runtime_context  # noqa: E402, F401

__version__ = "2.60.0"
sys.modules[__name__ + ".cloudpickle"] = cloudpickle

LOCAL_MODE, SCRIPT_MODE, WORKER_MODE = 2, 0, 1


class Language:
    PYTHON, CPP, JAVA = "PYTHON", "CPP", "JAVA"


_LAZY = {"runtime_context", "runtime_env", "remote_function", "_private", "experimental"}


def __getattr__(name):
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    refuse(__name__, name)


from . import actor, util  # noqa: E402, F401

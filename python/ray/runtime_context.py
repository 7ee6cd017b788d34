"""Facts for a program about the place where it runs."""

import os

from . import _session


class RuntimeContext:
    def __init__(self, core):
        self._core = core

    @property
    def _executor(self):
        return self._core.executor

    @property
    def _running(self):
        if self._executor is None:
            return None
        from ._worker import current

        return current.get()

    def get_job_id(self):
        return self._core.job["id"]

    def get_node_id(self):
        return self._core.node_id

    def get_worker_id(self):
        from ._history import worker_id

        return worker_id(self._core.proc)

    def get_task_id(self):
        running = self._running
        return None if running is None else running.id.hex()

    def get_task_name(self):
        running = self._running
        return None if running is None else running.name

    def get_task_function_name(self):
        running = self._running
        return None if running is None else running.function

    def get_actor_id(self):
        executor = self._executor
        return None if executor is None or executor.actor_id is None else executor.actor_id.hex()

    def get_actor_name(self):
        executor = self._executor
        return None if executor is None or executor.spec is None else executor.spec["name"] or ""

    def is_canceled(self):
        running = self._running
        return running is not None and running.cancelled

    @property
    def namespace(self):
        return _session.namespace()

    @property
    def was_current_actor_reconstructed(self):
        return self._executor is not None and self._executor.restarts > 0

    @property
    def current_actor(self):
        """A handle of the actor that runs this code."""
        from .actor import ActorHandle

        executor = self._executor
        if executor is None or executor.actor_id is None:
            raise RuntimeError("This method is only available in an actor.")
        meta = executor.spec["handle"]
        return ActorHandle(self._core.hold_actor(executor.actor_id, meta), self._core, meta)

    def get_accelerator_ids(self):
        from ._api import get_gpu_ids

        return {"GPU": [str(g) for g in get_gpu_ids()], **{name: [] for name in ("neuron_cores", "TPU", "NPU", "HPU", "RBLN", "FURIOSA", "MBLT", "TTNPU")}}

    def get_resource_ids(self):
        return self.get_accelerator_ids()

    def get_assigned_resources(self):
        executor = self._executor
        if executor is not None and executor.spec is not None:
            return dict(executor.spec["runs"])
        raise NotImplementedError("golaunch does not serve get_assigned_resources in a task; pass what it needs as an argument")

    def get_runtime_env_string(self):
        import json

        return json.dumps({k: v for k, v in _session.env_of_job().items() if k not in ("key", "package") and v})

    @property
    def runtime_env(self):
        return {k: v for k, v in _session.env_of_job().items() if k not in ("key", "package") and v}

    def get_placement_group_id(self):
        group = _session.group_of_task()
        return group[1].hex() if group is not None else None

    @property
    def should_capture_child_tasks_in_placement_group(self):
        group = _session.group_of_task()
        return bool(group is not None and group[3])

    def get_node_labels(self):
        from ._api import _nodes

        return next(n["labels"] for n in _nodes() if n["id"] == self._core.node_id)

    @property
    def gcs_address(self):
        return self._core.cluster

    def get_session_name(self):
        return self._core.session

    def get_temp_dir(self):
        import tempfile

        return os.path.join(tempfile.gettempdir(), "ray")

    def get(self):
        return {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}

    @property
    def job_id(self):
        from ._ids import JobID

        return JobID.from_hex(self.get_job_id())

    @property
    def node_id(self):
        from ._ids import NodeID

        return NodeID.from_hex(self.get_node_id())

    @property
    def task_id(self):
        from ._ids import TaskID

        task = self.get_task_id()
        return TaskID.from_hex(task) if task else TaskID.nil()

    @property
    def actor_id(self):
        from ._ids import ActorID

        actor = self.get_actor_id()
        if actor is None:
            raise AssertionError("This method can't be called in a task or a driver.")
        return ActorID.from_hex(actor)

    @property
    def current_placement_group_id(self):
        from ._ids import PlacementGroupID

        group = _session.group_of_task()
        return PlacementGroupID(group[1]) if group is not None else PlacementGroupID.nil()


def get_runtime_context():
    return RuntimeContext(_session.core())

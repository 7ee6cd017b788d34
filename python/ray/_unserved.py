"""Names and modules of Ray that golaunch does not serve, and what to use instead."""

import importlib.abc
import importlib.machinery
import sys

_EACH = "an actor for each GPU, and the function without _multigpu"
_LABELS = "NodeAffinitySchedulingStrategy"
_STATE = "list_actors, list_nodes, list_tasks or list_placement_groups, or `golaunch status`"
_TENSORS = "torch.distributed in the actors"

_MODULES = {
    "ray.air": "ray.train",
    "ray.autoscaler": "golaunch coordinator --capacity",
    "ray.client_builder": "ray.init(address)",
    "ray.cross_language": "ray.remote",
    "ray.dag": "references as arguments",
    "ray.data": "a torch DataLoader",
    "ray.experimental.channel": _TENSORS,
    "ray.experimental.collective": "ray.util.collective, or torch.distributed in the actors",
    "ray.experimental.compiled_dag_ref": "references as arguments",
    "ray.experimental.dynamic_resources": "the option --resources of ray start",
    "ray.experimental.internal_kv": "a named actor with a dictionary",
    "ray.experimental.locations": "NodeAffinitySchedulingStrategy, to choose the node",
    "ray.experimental.multiprocessing": "ray.util.multiprocessing",
    "ray.experimental.queue": "ray.util.queue",
    "ray.experimental.rdt": _TENSORS,
    "ray.experimental.sandbox": "a subprocess in a task, with golaunch's limits of memory",
    "ray.experimental.shuffle": "tasks with several results",
    "ray.experimental.tqdm_ray": "tqdm, whose lines the driver prints",
    "ray.experimental.util": _TENSORS,
    "ray.job_config": "namespace and runtime_env of ray.init",
    "ray.llm": "an inference engine in an actor",
    "ray.rllib": "worker groups or ray.remote",
    "ray.serve": "a server of its own, started by golaunch",
    "ray.tune": "one golaunch job for each trial",
    "ray.widgets": "print",
    "ray.workflow": "references as arguments",
    "ray.train.backend": "ray.train",
    "ray.train.base_trainer": "ray.train.torch.TorchTrainer, and TrainingFailedError of ray.train",
    "ray.train.collective": "torch.distributed in the function",
    "ray.train.context": "ray.train.get_context",
    "ray.train.error": "ray.train",
    "ray.train.horovod": "ray.train.torch",
    "ray.train.huggingface": "ray.train.torch, with transformers in the function",
    "ray.train.lightgbm": "ray.remote",
    "ray.train.lightning": "ray.train.torch, with Lightning in the function",
    "ray.train.tensorflow": "ray.train.torch",
    "ray.train.v2.jax": "jax.distributed in ray.remote, or golaunch itself",
    "ray.train.v2.torch": "ray.train.torch",
    "ray.train.xgboost": "ray.remote",
    **{f"ray.train.v2.api.{name}": "ray.train" for name in (
        "callback", "config", "context", "exceptions", "preemption", "report_config", "reported_checkpoint", "result", "train_fn_utils", "validation_config")},
    "ray.util.accelerators": "a custom resource (resources={...})",
    "ray.util.actor_group": "a list of actors",
    "ray.util.check_serialize": "cloudpickle.dumps, whose exception says what cannot travel",
    "ray.util.client": "ray.init(address)",
    "ray.util.client_connect": "ray.init(address)",
    "ray.util.collective.collective": "ray.util.collective",
    "ray.util.collective.collective_group": "the backend GLOO, or torch.distributed itself",
    "ray.util.dask": "ray.remote",
    "ray.util.debugpy": "golaunch stacks",
    "ray.util.helpers": "ray.wait, and ray.util.ActorPool",
    "ray.util.iter": "generators",
    "ray.util.joblib": "ray.util.multiprocessing",
    "ray.util.metrics": "a library for metrics such as prometheus_client, beside golaunch metrics",
    "ray.util.rpdb": "golaunch stacks",
    "ray.util.serialization": "__reduce__ of the class, or copyreg",
    "ray.util.spark": "golaunch coordinator on the driver, and golaunch agent on each worker",
    "ray.util.tpu": "a custom resource (resources={...})",
    "ray.util.tracing": "ray.timeline",
}
_NAMES = {
    "ray.ClientBuilder": "ray.init(address)",
    "ray.LoggingConfig": "the module logging",
    "ray.client": "ray.init(address)",
    "ray.cpp_function": "ray.remote",
    "ray.internal": "del: an object is freed with its last reference",
    "ray.java_actor_class": "ray.remote",
    "ray.java_function": "ray.remote",
    "ray.show_in_dashboard": "print, and see golaunch logs",
    "ray.experimental.CommunicatorMetadata": _TENSORS,
    "ray.experimental.RDTManager": _TENSORS,
    "ray.experimental.TensorTransportManager": _TENSORS,
    "ray.experimental.TensorTransportMetadata": _TENSORS,
    "ray.experimental.deregister_nixl_memory": _TENSORS,
    "ray.experimental.get_local_object_locations": "NodeAffinitySchedulingStrategy, to choose the node",
    "ray.experimental.get_object_locations": "NodeAffinitySchedulingStrategy, to choose the node",
    "ray.experimental.register_nixl_memory": _TENSORS,
    "ray.experimental.register_nixl_memory_pool": _TENSORS,
    "ray.experimental.register_tensor_transport": _TENSORS,
    "ray.experimental.set_nixl_cuda_stream": _TENSORS,
    "ray.experimental.set_resource": "the option --resources of ray start",
    "ray.experimental.set_target_device_for_ref": _TENSORS,
    "ray.experimental.set_target_for_ref": _TENSORS,
    "ray.experimental.wait_tensor_freed": _TENSORS,
    "ray.train.CheckpointConsistencyMode": "Result.best_checkpoints after fit",
    "ray.train.CheckpointUploadMode": "a storage_path that all nodes share",
    "ray.train.ControllerError": "TrainingFailedError",
    "ray.train.LoggingConfig": "the module logging",
    "ray.train.NCCLHangError": "TrainingFailedError",
    "ray.train.PreemptionError": "TrainingFailedError",
    "ray.train.PreemptionInfo": "the file of GOLAUNCH_NOTICE_FILE",
    "ray.train.ReportedCheckpoint": "Result.best_checkpoints after fit",
    "ray.train.ReportedCheckpointStatus": "Result.best_checkpoints after fit",
    "ray.train.SyncConfig": "a storage_path that all nodes share",
    "ray.train.TRAIN_DATASET_KEY": "torch.utils.data with ray.train.torch.prepare_data_loader",
    "ray.train.TrainContext": "ray.train.get_context",
    "ray.train.UserCallback": "code in the function",
    "ray.train.ValidationConfig": "validation in the function",
    "ray.train.ValidationFn": "validation in the function",
    "ray.train.ValidationTaskConfig": "validation in the function",
    "ray.train.get_all_reported_checkpoints": "Result.best_checkpoints after fit",
    "ray.train.get_dataset_shard": "torch.utils.data with ray.train.torch.prepare_data_loader",
    "ray.train.get_preemption_info": "the file of GOLAUNCH_NOTICE_FILE",
    "ray.train.torch.TorchCheckpoint": "ray.train.Checkpoint with torch.save",
    "ray.train.torch.accelerate": "torch.autocast",
    "ray.train.torch.backward": "loss.backward()",
    "ray.train.torch.enable_reproducibility": "torch.manual_seed and torch.use_deterministic_algorithms",
    "ray.train.torch.prepare_optimizer": "the optimizer itself",
    "ray.util.as_completed": "ray.wait",
    "ray.util.connect": "ray.init(address)",
    "ray.util.deregister_serializer": "__reduce__ of the class, or copyreg",
    "ray.util.disable_log_once_globally": "the module logging",
    "ray.util.disconnect": "ray.shutdown",
    "ray.util.enable_periodic_logging": "the module logging",
    "ray.util.get_node_instance_id": "ray.get_runtime_context().get_node_id",
    "ray.util.inspect_serializability": "cloudpickle.dumps, whose exception says what cannot travel",
    "ray.util.log_once": "the module logging",
    "ray.util.map_unordered": "ray.util.ActorPool.map_unordered",
    "ray.util.pdb": "golaunch stacks",
    "ray.util.ray_debugpy": "golaunch stacks",
    "ray.util.register_serializer": "__reduce__ of the class, or copyreg",
    "ray.util.scheduling_strategies.DoesNotExist": _LABELS,
    "ray.util.scheduling_strategies.Exists": _LABELS,
    "ray.util.scheduling_strategies.In": _LABELS,
    "ray.util.scheduling_strategies.NotIn": _LABELS,
    "ray.util.collective.allgather_multigpu": _EACH,
    "ray.util.collective.allreduce_multigpu": _EACH,
    "ray.util.collective.broadcast_multigpu": _EACH,
    "ray.util.collective.recv_multigpu": _EACH,
    "ray.util.collective.reduce_multigpu": _EACH,
    "ray.util.collective.reducescatter_multigpu": _EACH,
    "ray.util.collective.register_collective_backend": "the backend GLOO, or torch.distributed itself",
    "ray.util.collective.send_multigpu": _EACH,
    "ray.util.state.StateApiClient": _STATE,
    "ray.util.state.get_job": "list_jobs with filters",
    "ray.util.state.get_log": "golaunch logs",
    "ray.util.state.get_objects": _STATE,
    "ray.util.state.get_worker": _STATE,
    "ray.util.state.list_cluster_events": "golaunch jobs",
    "ray.util.state.list_logs": "golaunch logs",
    "ray.util.state.list_objects": _STATE,
    "ray.util.state.list_runtime_envs": _STATE,
    "ray.util.state.list_workers": _STATE,
    "ray.util.state.summarize_objects": _STATE,
}


def refuse(module, name):
    """Raises the error with which a module's __getattr__ refuses a name."""
    full = f"{module}.{name}"
    instead = _NAMES.get(full) or _MODULES.get(full)
    if instead is not None:
        raise NotImplementedError(f"golaunch does not serve {full}; use {instead}")
    raise AttributeError(f"module {module!r} has no attribute {name!r} (this is golaunch-ray: docs/from-ray.md lists what it serves)")


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes imports of Ray's other modules say what to use instead."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name in _MODULES else None

    def exec_module(self, module):
        raise ImportError(f"golaunch-ray does not serve {module.__name__}; use {_MODULES[module.__name__]} (docs/from-ray.md)", name=module.__name__)


sys.meta_path.append(_Modules())

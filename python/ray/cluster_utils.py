"""Clusters of several nodes on this machine, for tests."""

from . import _cluster, _session


class Cluster:
    """Nodes on this machine: describe all of them before ray.init(address=cluster.address)."""

    def __init__(self, initialize_head=False, connect=False, head_node_args=None, shutdown_at_exit=True):
        self._nodes, self._found = [], None
        self.address = None
        if initialize_head:
            self.add_node(**(head_node_args or {}))
            if connect:
                self.connect()

    def add_node(self, wait=True, num_cpus=1, num_gpus=0, resources=None, labels=None, object_store_memory=None, memory=None, **unused):
        if self._found is not None:
            raise NotImplementedError("golaunch does not add a node to a cluster that has started: add all before ray.init")
        self._nodes.append({"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources, "labels": labels, "object_store_memory": object_store_memory, "memory": memory})
        self.address = f"cluster_utils-{id(self)}"
        _session._pending[:] = [self]
        return self._nodes[-1]

    def connect(self, namespace=None):
        return _session.init(address=self.address, namespace=namespace)

    def _begin(self):
        self._found = _session._start(self._nodes, _cluster.spill_directory(None))
        return self._found

    def remove_node(self, node, allow_graceful=False):
        """Kills the node's host, and with it everything that the host runs."""
        core = _session.core()
        nodes, _ = core.ask(core.head, "nodes")
        index = self._nodes.index(node)
        if not index:
            raise NotImplementedError("golaunch does not remove the head of a cluster: shut it down")
        core.ask(core.head, "kill_node", nodes[index]["id"])

    def shutdown(self):
        _session.shutdown()

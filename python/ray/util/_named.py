from .. import _session


def list_named_actors(all_namespaces=False):
    """The names of the actors in this namespace; or of all actors, with their namespaces."""
    core = _session.core()
    names, _ = core.ask(core.head, "names", None if all_namespaces else _session.namespace())
    return names if all_namespaces else [n["name"] for n in names]


def get_node_ip_address():
    """The address of this process's node."""
    return _session.core().address[2]

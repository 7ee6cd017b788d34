"""Where this process runs."""

from ..util._named import get_node_ip_address  # noqa: F401

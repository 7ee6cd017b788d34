"""What programs ask of the worker of their process."""

from .. import _session


class _Client:
    @property
    def address(self):
        return _session.core().cluster


class _Worker:
    gcs_client = _Client()

    @property
    def connected(self):
        return _session.initialized()


global_worker = _Worker()

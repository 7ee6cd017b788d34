"""Exceptions of calls of workers."""


class GolaunchError(Exception):
    """golaunch itself failed."""


class WorkerFailureError(GolaunchError):
    """A worker died, or a method that it was called for raised an exception.

    rank, node and gpu name the worker; gpu is its UUID or index, or None. cause is golaunch's
    verdict, one of those in docs/failures.md, or "exception" for an exception that the worker
    survived. verdict explains the cause in a line. remote_traceback is the traceback in the worker,
    and last_words are the last lines of its standard error. exit_code and signal say how a worker
    ended. __cause__ is the exception itself, if it could be brought here.
    """

    def __init__(self, message, *, rank=None, node=None, gpu=None, cause=None, verdict=None, remote_traceback=None, last_words=None,
                 exit_code=None, signal=None, method=None):
        super().__init__(message)
        self.rank, self.node, self.gpu, self.cause, self.verdict = rank, node, gpu, cause, verdict
        self.remote_traceback, self.last_words = remote_traceback, last_words
        self.exit_code, self.signal, self.method = exit_code, signal, method

    def __str__(self):
        text = super().__str__()
        if self.verdict:
            text += f"\ngolaunch's verdict: {self.verdict}"
        if self.remote_traceback:
            text += "\n\n" + self.remote_traceback.rstrip()
        elif self.last_words:
            text += "\n\nits last words:\n" + self.last_words.rstrip()
        return text

    def __reduce__(self):
        return (_remade, (type(self), self.args, self.__dict__))

    def again(self):
        """The same failure as another exception object, so that each caller gets a traceback of its
        own.
        """
        other = _remade(type(self), self.args, self.__dict__)
        other.__cause__ = self.__cause__
        return other


def _remade(kind, args, attributes):
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class GroupDeadError(WorkerFailureError):
    """The group has ended: it was shut down, its cluster was closed, or it has failed more often
    than it may restart.
    """


class ResultTooLarge(WorkerFailureError):
    """A result is larger than max_result_bytes allows; the worker goes on."""


class GPUMemoryError(GolaunchError):
    """A group's turn cannot begin, since others hold memory of its GPUs. held has a dict for each
    holder: node, gpu_uuid, bytes, pid, job, rank, by.
    """

    def __init__(self, message, held=()):
        super().__init__(message)
        self.held = list(held)


class CallCancelled(GolaunchError):
    """The call was cancelled."""


class DeadlineExceeded(GolaunchError, TimeoutError):
    """The call was not answered by its deadline. ranks are the ranks that did not answer."""

    def __init__(self, message, ranks=()):
        super().__init__(message)
        self.ranks = list(ranks)

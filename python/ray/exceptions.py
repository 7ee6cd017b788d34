"""Ray's exceptions, by their names and with their bases."""

import os
import pickle

import cloudpickle


class RayError(Exception):
    """The base of all."""

    def to_bytes(self):
        return cloudpickle.dumps(self)


class CrossLanguageError(RayError):
    pass


class TaskCancelledError(RayError):
    def __init__(self, task_id=None, error_message=None):
        self.task_id, self.error_message = task_id, error_message

    def __str__(self):
        if self.task_id is None:
            return "This task or its dependency was cancelled by" + (self.error_message or "")
        return f"Task: {self.task_id} was cancelled. " + (self.error_message or "")

    def __reduce__(self):
        return type(self), (self.task_id, self.error_message)


class RayTaskError(RayError):
    """A task raised an exception, which is its cause. What ray.get raises is that exception's class
    too, where a class may have both bases.
    """

    def __init__(self, function_name, traceback_str, cause, proctitle=None, pid=None, ip=None, actor_repr=None, actor_id=None):
        self.proctitle, self.pid, self.ip = proctitle or function_name, pid or os.getpid(), ip or "127.0.0.1"
        self.function_name, self.traceback_str = function_name, traceback_str
        self.actor_repr, self._actor_id, self.cause = actor_repr, actor_id, cause
        self.args = (function_name, traceback_str, cause, proctitle, pid, ip, actor_repr, actor_id)

    def __reduce__(self):
        return RayTaskError, (self.function_name, self.traceback_str, self.cause, self.proctitle, self.pid, self.ip, self.actor_repr, self._actor_id)

    def as_instanceof_cause(self):
        """The same error as an instance of its cause's class too."""
        cause = self.cause.__class__
        if issubclass(RayTaskError, cause):
            return self
        try:
            return self._dual(cause)
        except TypeError:  # the class may allow no subclass, or none with two bases
            return self

    as_cause = as_instanceof_cause

    def make_dual_exception_instance(self):
        return self.as_instanceof_cause()

    def _dual(self, cause_class):
        error_msg = str(self)

        class cls(RayTaskError, cause_class):
            def __init__(self, cause):
                self.cause = cause
                self.args = (cause,)

            def __getattr__(self, name):
                return getattr(self.cause, name)

            def __str__(self):
                return error_msg

            def __reduce__(self):
                return _again, (self._of,)

        name = f"RayTaskError({cause_class.__name__})"
        cls.__name__ = cls.__qualname__ = name
        cls.__module__ = RayTaskError.__module__
        error = cls(self.cause)
        error.__dict__.update({k: v for k, v in self.__dict__.items() if k != "args"})
        error._of = self
        return error

    def __str__(self):
        lines = self.traceback_str.strip().split("\n")
        about = f"pid={self.pid}, ip={self.ip}"
        if self.actor_repr:
            about += f", actor_id={self._actor_id}, repr={self.actor_repr}"
        out = [f"\x1b[36m{self.proctitle}\x1b[39m ({about})"]
        return "\n".join(out + lines)


def _again(error):
    return error.as_instanceof_cause()


class RayActorError(RayError):
    """An actor has died, or cannot be reached."""

    BASE = "The actor experienced an error before finishing this task."

    def __init__(self, actor_id=None, error_msg=BASE, actor_init_failed=False, preempted=False):
        self.actor_id, self.error_msg, self._actor_init_failed, self._preempted = actor_id, error_msg, actor_init_failed, preempted
        self.args = (actor_id, error_msg, actor_init_failed, preempted)

    def __str__(self):
        return self.error_msg

    @property
    def actor_init_failed(self):
        return self._actor_init_failed

    @property
    def preempted(self):
        return self._preempted


class ActorDiedError(RayActorError):
    """The actor is dead and does not start again. cause is a RayTaskError of its constructor, or a
    text.
    """

    def __init__(self, cause=None, actor_id=None, class_name=None, namespace="", name="", pid=None, ip=None):
        if isinstance(cause, RayTaskError):
            text = f"The actor died because of an error raised in its creation task, {cause}"
        else:
            text = "The actor died unexpectedly before finishing this task."
            if class_name:
                text += f"\n\tclass_name: {class_name}"
            if actor_id:
                text += f"\n\tactor_id: {actor_id}"
            for label, value in (("pid", pid), ("name", name), ("namespace", namespace), ("ip", ip)):
                if value:
                    text += f"\n\t{label}: {value}"
            if cause:
                text += f"\n{cause}"
        super().__init__(actor_id, text, actor_init_failed=isinstance(cause, RayTaskError))
        self.cause = cause
        self.args = (cause, actor_id, class_name, namespace, name, pid, ip)

    @staticmethod
    def from_task_error(task_error):
        return ActorDiedError(task_error)


class ActorUnavailableError(RayActorError):
    """The actor cannot be reached for now; the call may have run."""

    def __init__(self, error_message="", actor_id=None):
        super().__init__(actor_id, f"The actor {actor_id} is unavailable: {error_message}. The task may or may not have been executed on the actor.")
        self.args = (error_message, actor_id)


class WorkerCrashedError(RayError):
    """The process that ran a task died."""

    def __str__(self):
        return "The worker died unexpectedly while executing this task. " + (self.args[0] if self.args else "Check python-core-worker-*.log files for more information.")


class _Message(RayError):
    def __str__(self):
        return str(self.args[0]) if self.args else (type(self).__doc__ or type(self).__name__).strip()


class LocalRayletDiedError(_Message):
    """The node's host died."""


class NodeDiedError(_Message):
    """A node died."""


class RpcError(_Message):
    """A process could not be asked."""


class RaySystemError(RayError):
    def __init__(self, client_exc, traceback_str=None):
        self.client_exc, self.traceback_str = client_exc, traceback_str
        self.args = (client_exc, traceback_str)

    def __str__(self):
        return f"System error: {self.client_exc}" + (f"\ntraceback: {self.traceback_str}" if self.traceback_str else "")


class UserCodeException(RayError):
    pass


class UnserializableException(RayError):
    pass


class OutOfMemoryError(_Message):
    """A node had no memory left."""


class OutOfDiskError(_Message):
    """A node's disk is full."""


class ObjectStoreFullError(_Message):
    """The memory for objects of a node is full."""


class GetTimeoutError(RayError, TimeoutError):
    """ray.get waited for longer than its timeout."""


class RuntimeEnvSetupError(RayError):
    def __init__(self, error_message=None):
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self):
        return "Failed to set up runtime environment." + (f"\n{self.error_message}" if self.error_message else "")


class TaskUnschedulableError(RayError):
    def __init__(self, error_message=""):
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self):
        return f"The task is not schedulable: {self.error_message}"


class ActorUnschedulableError(RayError):
    def __init__(self, error_message=""):
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self):
        return f"The actor is not schedulable: {self.error_message}"


class TaskPlacementGroupRemoved(RayError):
    def __str__(self):
        return "The placement group corresponding to this task has been removed."


class ActorPlacementGroupRemoved(RayError):
    def __str__(self):
        return "The placement group corresponding to this Actor has been removed."


class PendingCallsLimitExceeded(_Message):
    """An actor has as many pending calls as max_pending_calls allows."""


class ObjectLostError(RayError):
    """An object is nowhere any more."""

    def __init__(self, object_ref_hex=None, owner_address=None, call_site="", why=""):
        self.object_ref_hex, self.owner_address, self.call_site, self.why = object_ref_hex, owner_address, call_site, why
        self.args = (object_ref_hex, owner_address, call_site, why)

    def _what(self):
        return f"Failed to retrieve object {self.object_ref_hex}. "

    def __str__(self):
        return self._what() + "All copies of the object are lost" + (f": {self.why}" if self.why else ".")


class ObjectFetchTimedOutError(ObjectLostError):
    pass


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    pass


class ObjectFreedError(ObjectLostError):
    def __str__(self):
        return self._what() + "The object was freed."


class OwnerDiedError(ObjectLostError):
    """The process that owns an object has died, and the object with it."""

    def __str__(self):
        return self._what() + "The object's owner has exited. This is the Python worker that first created the ObjectRef via `.remote()` or `ray.put()`." + (
            f" {self.why}" if self.why else "")


class ObjectReconstructionFailedError(ObjectLostError):
    def __str__(self):
        return self._what() + "The object cannot be reconstructed" + (f": {self.why}" if self.why else ".")


class PlasmaObjectNotAvailable(_Message):
    """An object is not in this node's memory."""


class AsyncioActorExit(RayError):
    pass


class RayChannelError(RaySystemError):
    pass


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    pass


class RayCgraphCapacityExceeded(RaySystemError):
    pass


class RayDirectTransportError(RaySystemError):
    pass


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    pass


class AuthenticationError(RayError):
    pass


class ActorAlreadyExistsError(ValueError, RayError):
    pass


class ActorHandleNotFoundError(ValueError, RayError):
    pass


class ObjectRefStreamEndOfStreamError(RayError):
    pass


class OufOfBandObjectRefSerializationException(RayError):
    pass


def dump(error):
    """An exception as bytes, whatever it is."""
    try:
        data = cloudpickle.dumps(error)
        pickle.loads(data)  # some exceptions can be pickled, but not unpickled
        return data
    except Exception:
        if isinstance(error, RayTaskError):
            cause = type(error.cause).__name__
            text = _text(error.cause)
            error = RayTaskError(
                error.function_name, error.traceback_str, RayError(f"{cause}: {text} (the exception cannot be pickled)"), error.proctitle, error.pid, error.ip,
                error.actor_repr, error._actor_id)
            return cloudpickle.dumps(error)
        return cloudpickle.dumps(RaySystemError(f"{type(error).__name__}: {_text(error)}"))


def _text(error):
    try:
        return str(error)
    except Exception:
        return "(its text cannot be had)"

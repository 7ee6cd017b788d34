"""What each process of a session has: its connections, the objects that it owns, and its calls.

The process that calls a task owns the results, and sends the call to the worker itself; the head
only says which process may run it. One thread receives; callers send from their own. Nothing of the
user's is unpickled in the receiving thread, where it would keep others waiting.
"""

import _thread
import hashlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from collections import OrderedDict, deque

from . import _history, _objects, _wire
from . import exceptions as errors
from ._objects import ObjectRef

_PATIENCE = 1.0  # seconds that an interrupt waits for an answer
_LATER = 0.005  # seconds until a signal that came at a bad moment is sent again
_IDLE = 0.02  # seconds that a process stays leased without a task
_DROP = 0.05  # seconds until owners are told which references are gone
_ASKED = 10  # requests for processes that may be unanswered, for each kind of task
_DEPTH = 32  # tasks that are sent to one process at a time, if they are short
_SHORT = 0.001  # seconds that a short task takes at most
_TIDY = 10.0
_LINEAGE = 64 << 20  # bytes of finished tasks that are kept
_TASK = 1024  # bytes that count for each kept task, besides its arguments
_REJOIN = 10.0  # seconds for a process of another node to connect again; then its references are given up
_GONE = 10  # processes in a row that end at once, until a task is given up
_WHY = ": golaunch status or the output of the node's agent says why"
_TRIES = 3  # attempts to connect to a process that lives, according to the head


class Object:
    """An object that this process owns."""

    __slots__ = ("desc", "borrows", "waiting", "nested", "task", "copies")

    def __init__(self, desc=None, task=None):
        self.desc, self.task = desc, task
        self.borrows, self.waiting, self.nested, self.copies = None, None, None, None


class Local:
    """References of this process to an object."""

    __slots__ = ("count", "owner", "view", "waiting")

    def __init__(self, owner):
        self.count, self.owner, self.view = 1, owner, None
        self.waiting = None  # callbacks that wait for the owner's answer


class Task:
    __slots__ = ("id", "fid", "function", "body", "deps", "want_deps", "count", "pool", "actor", "retries", "retry_exceptions", "name", "pins", "link", "lease",
                 "cancelled", "stream", "method", "ready", "parent", "makers", "kept", "called", "made", "attempt", "__weakref__")

    def __init__(self):
        self.lease = self.link = self.actor = self.pool = self.stream = self.fid = self.function = self.method = None
        self.kept = None
        self.deps = self.pins = self.makers = ()
        self.cancelled, self.ready, self.want_deps, self.parent, self.id = False, True, 0, None, None
        self.count, self.retries, self.retry_exceptions = 1, 0, False
        self.called, self.made, self.attempt = None, time.time(), 0


class Kept:
    """A task that is over is kept, to make its results again if they are lost."""

    __slots__ = ("core", "size")

    def __init__(self, core, size):
        self.core, self.size = core, size
        core.lineage += size

    def __del__(self):
        self.core.lineage -= self.size


class Lease:
    __slots__ = ("number", "address", "gpus", "link", "tasks", "idle", "stalled", "pool")

    def __init__(self, number, address, gpus, link, pool):
        self.number, self.address, self.gpus, self.link, self.pool = number, address, gpus, link, pool
        self.tasks, self.idle, self.stalled = OrderedDict(), 0.0, False  # stalled: the running task takes long, or waits


class Pool:
    """Tasks that may run in the same processes."""

    def __init__(self, key, want, strategy, env):
        self.key, self.want, self.strategy, self.env = key, want, strategy, env
        self.queue, self.leases, self.asked, self.depth = deque(), {}, 0, 1
        self.gone = 0  # processes in a row that had ended before they got a task
        self.idle = 0.0 if set(want) - {"CPU"} else _IDLE  # other tasks may wait for a scarce resource


class ActorLink:
    """An actor, as this process sees it."""

    def __init__(self, actor, meta):
        self.id, self.meta = actor, meta
        self.state, self.queue, self.tasks, self.tries = "unknown", deque(), OrderedDict(), 0
        self.link, self.address, self.restarts, self.error = None, None, -1, None
        self.handles, self.closing, self.pins = 0, False, ()
        self.takes = {}  # the arguments that each method takes


def base_of(proc, node_id):
    """The first bytes of the names of all objects that a process owns; without proc, of all objects
    that processes of the node own.
    """
    node = hashlib.blake2b(node_id.encode(), digest_size=6).digest()
    return node if proc is None else node + hashlib.blake2b(proc.encode(), digest_size=6).digest()


class Core:
    def __init__(self, session, address, head_address, host_address, certificate, job, cluster):
        self.session, self.address, self.proc, self.node_id = session, address, address[0], address[1]
        self.head_address, self.host_address, self.certificate, self.job = head_address, host_address, certificate, job
        self.cluster = cluster  # the address of the cluster's coordinator
        self.lock = threading.RLock()
        self.loop = _wire.Loop()
        self.links, self.connecting = {}, {}
        self.host = self._head = None
        self.objects, self.local, self.gone = {}, {}, deque()
        self.dropping = False
        self.tasks, self.pools, self.actors, self.sent = {}, {}, {}, {}
        self.reaping = False
        self.lineage, self.kept = 0, deque()  # the bytes of finished tasks, and weak references to these tasks
        self.numbers = itertools.count(1)
        self.base = base_of(address[0], address[1])
        self.closed, self.why_closed = False, ""
        self.executor = None  # in a worker: runs its tasks
        self.on_wait = None  # in a worker: called when its task waits for others
        self.interrupt = None  # in a worker: called for a cancellation that came at a bad moment
        self.held_results = {}
        self.thread = None
        self.printed = None
        self.directory = None  # in a worker: its copy of the program's working directory
        self.creates = False  # whether it has created actors, which end with it
        self.notes = _history.Notes(self)

    # Life cycle

    def start(self):
        self.thread = threading.Thread(target=self._run, name="ray-io", daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.loop.run()
        except BaseException:
            if not self.closed:
                traceback.print_exc()
                os._exit(1)

    def alive(self):
        """Every call begins with this: it handles a cancellation that has waited, and checks that
        the session is alive.
        """
        if self.interrupt is not None:
            self.interrupt(sys._getframe(2))
        if self.closed:
            raise errors.RaySystemError(self.why_closed or "ray.shutdown() has been called: references and handles of that cluster are of no use any more")

    def close(self):
        with self.lock:
            if self.closed:
                return
            self.notes.tell()
            self.closed = True
        for link in list(self.links.values()) + [self.host, self._head]:
            if link is not None:
                self.loop.soon(link.close)
        self.loop.soon(self.loop.stop)
        if self.thread is not threading.current_thread():
            self.thread.join(5)
        self._fail_all("ray.shutdown() has been called")

    def forked(self):
        """In a child after a fork: the connections and their thread belong to the parent."""
        self.closed, self.why_closed = True, "this process is a fork of one that uses the cluster, and cannot: start it with ray, or with another program"
        self.lock = threading.RLock()
        for held in [*self.links.values(), self.host, self._head]:
            if held is not None:
                held.sock.close()  # otherwise it would hide the parent's end
        self.server.close()
        if self.executor is not None:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__

    def listen(self, server):
        def accept(_):
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                if _wire.same_user(sock):
                    _wire.Connection(self.loop, sock, self._message, self._lost)
                else:
                    sock.close()

        self.server = server
        self.loop.register(server.fileno(), accept)

    def apart(self, do, *args):
        threading.Thread(target=do, args=args, daemon=True).start()

    # Connections

    def link_to(self, address, then):
        """Calls then(link) with a connection to a process, or then(None) if there is no such
        process any more. It calls at once if there is a connection, or if the process is on this
        node.
        """
        proc = address[0]
        with self.lock:
            link = self.links.get(proc)
            if link is None:
                waiting = self.connecting.get(proc)
                if waiting is not None:
                    waiting.append(then)
                    return
                self.connecting[proc] = [then]
        if link is not None:
            then(link)
        elif address[1] == self.node_id:
            self._connect(address)
        else:
            self.apart(self._connect, address)

    def _connect(self, address):
        proc, node, host, port = address
        try:
            if node == self.node_id:
                link = _wire.Connection(self.loop, _wire.connect(proc), self._message, self._lost)
            else:
                link = _wire.Connection(
                    self.loop, _wire.connect_far(host, port, proc), self._message, self._lost, tls=_wire.certificates(self.certificate, False))
            link.peer = proc
            link.send("hello", self.proc)
        except (OSError, ValueError):
            link = None
        with self.lock:
            theirs = self.links.get(proc)
            if theirs is not None and not theirs.closed:  # they have connected meanwhile, and borrowed references count for each connection
                if link is not None:
                    self.loop.soon(link.close)
                link = theirs
            elif link is not None and not link.closed:
                self.links[proc] = link
            waiting = self.connecting.pop(proc, ())
        for then in waiting:
            then(link)

    def _accept_far(self, sock):
        if self.loop.strangers >= _wire.STRANGERS:
            sock.close()
            return
        _wire.Connection(self.loop, sock, self._message, self._lost, tls=_wire.certificates(self.certificate, True), server=True)

    def _lost(self, link):
        with self.lock:
            known = self.links.get(link.peer) is link
            if known:
                del self.links[link.peer]
            borrowed = [oid for oid, obj in self.objects.items() if obj.borrows and link in obj.borrows]
            borrows = [oid for oid, local in self.local.items() if local.owner[0] == link.peer]
            for key in [k for k in self.held_results if k[0] is link]:
                del self.held_results[key]
            for key in [k for k in self.sent if k[0] is link]:
                del self.sent[key]
            leases = [x for p in self.pools.values() for x in p.leases.values() if x.link is link]
            actors = [a for a in self.actors.values() if a.link is link]
        if link.far and borrowed:
            self.loop.later(_REJOIN, lambda: self._unborrowed(link, borrowed))
        else:
            self._unborrowed(link, borrowed)
        if link.far and known and borrows:
            self._borrow_again(borrows)
        if link is self.host or link is self._head:
            self._cut_off(("the node's host has ended" if link is self.host else "the head of the cluster has ended, or its connection") + _WHY)
            return
        for lease in leases:
            self._lease_lost(lease)
        for actor in actors:
            self._actor_lost(actor)
        if self.executor is not None:
            self.executor.lost(link)

    def _unborrowed(self, link, oids):
        """A process that had references to objects has ended."""
        with self.lock:
            for oid in oids:
                obj = self.objects.get(oid)
                if obj is not None and obj.borrows and obj.borrows.pop(link, None):
                    self._maybe_free(oid, obj)

    def _borrow_again(self, oids):
        """A connection to another node has ended, but the owners of borrowed objects may live."""
        def linked(link):
            with self.lock:
                for oid in oids:
                    if link is not None and oid in self.local:
                        link.ask(lambda *_: None, "borrow", oid)

        local = self.local.get(oids[0])
        if local is not None:
            self.link_to(local.owner, linked)

    def _whether_ended(self, owner, then):
        """Calls then(why) for a process to which the connection has ended. why is empty if the
        process lives, according to the head.
        """
        if self.closed:
            then(self.why_closed or "the cluster is shut down")
        else:
            self.head.ask(lambda value, error, _: then(value if error is None else "the head of the cluster has ended" + _WHY), "ended", owner)

    def _owner_died(self, oid, owner, why):
        return errors.OwnerDiedError(oid.hex(), owner, why=f"It ran on node {owner[1]} ({owner[2]}): {why or 'it cannot be reached from here'}.")

    def _cut_off(self, why):
        if self.executor is not None:
            os._exit(1)
        if not self.closed:
            self.closed, self.why_closed = True, f"{why}; after ray.shutdown(), ray.init() begins anew"
            self._fail_all(why)

    def _fail_all(self, why):
        for task in list(self.tasks.values()):
            self._fail(task, errors.RaySystemError(why))

    @property
    def head(self):
        """The connection to the head."""
        if self._head is None:
            got, there = [], _thread.allocate_lock()
            there.acquire()

            def then(link):
                got.append(link)
                there.release()

            self.link_to(self.head_address, then)
            interruptible_wait(there.acquire)
            if got[0] is None:
                raise errors.RaySystemError("the head of the cluster cannot be reached")
            self._head = got[0]
        return self._head

    def ask(self, link, op, *args, fds=(), timeout=None, late=None):
        """Asks another process, and waits for the answer: a value, and descriptors. An interrupt,
        too, waits for the answer for a while. late(value) is called for an answer that comes after
        an interrupt.
        """
        if self.closed:
            self.alive()
        if threading.current_thread() is self.thread:
            raise RuntimeError(f"{op} is asked in the thread that receives answers")
        there = _thread.allocate_lock()
        there.acquire()
        got, over = [], []

        def spare(value, error, fds):
            _objects.close_all(fds)
            if late is not None and error is None:
                late(value)

        def then(*answer):
            with self.lock:
                if not over:
                    got.append(answer)
                    there.release()
                    return
            spare(*answer)

        link.ask(then, op, *args, fds=fds)
        if not there.acquire(True, _PATIENCE if timeout is None else min(timeout, _PATIENCE)):
            came = False
            try:
                came = interruptible_wait(there.acquire, True, -1 if timeout is None else max(0, timeout - _PATIENCE))
            finally:
                with self.lock:
                    over.append(True)
                if not came and got:
                    spare(*got.pop())
        if not got:
            raise errors.GetTimeoutError(f"no answer to {op} within {timeout} s")
        value, error, fds = got[0]
        if error is not None:
            if isinstance(error, ConnectionError):
                raise errors.RaySystemError(self.why_closed or str(error))
            raise error if isinstance(error, BaseException) else _HostError(error)
        return value, fds

    def _message(self, link, message, fds):
        op = message[0]
        if op == "R":
            self._result(link, *message[1:])
        elif op == "T" or op == "M":
            self.executor.arrived(link, message)
        elif op == "?":
            number = message[1]
            getattr(self, "on_" + message[2])(link, lambda value=None, error=None: link.answer(number, value, error), *message[3:])
        else:
            getattr(self, "said_" + op)(link, fds, *message[1:])

    def said_hello(self, link, fds, proc):
        link.peer = proc
        with self.lock:
            if self.links.get(proc) is None:
                self.links[proc] = link

    def said_accept(self, link, fds):
        self._accept_far(socket.socket(fileno=fds[0]))

    def on_tasks(self, link, then):
        then(self.notes.known())

    def said_log(self, link, fds, out, text):
        if self.printed is not None:
            self.printed(out, text)

    # References

    def ref(self, oid, owner):
        """A reference to an object that this process owns, or has borrowed already."""
        local = self.local.get(oid)
        if local is None:
            self.local[oid] = Local(owner)
        else:
            local.count += 1
        return ObjectRef(oid, owner, self)

    def adopt(self, oid, owner):
        """A reference that another process has sent."""
        with self.lock:
            self.alive()
            if owner[0] == self.proc or oid in self.local:
                return self.ref(oid, owner)
        link = self._owner(owner)
        try:
            known = link is not None and self.ask(link, "borrow", oid, late=lambda known: known and link.send("unborrow", oid))[0]
        except errors.RaySystemError:  # the connection has just ended
            known = False
        with self.lock:
            if oid in self.local and known:
                link.send("unborrow", oid)
            return self.ref(oid, owner)  # if the owner of a reference has died, a get says so

    def _owner(self, owner):
        got, there = [], _thread.allocate_lock()
        there.acquire()

        def then(link):
            got.append(link)
            there.release()

        self.link_to(owner, then)
        interruptible_wait(there.acquire)
        return got[0]

    def on_borrow(self, link, then, oid):
        with self.lock:
            obj = self.objects.get(oid)
            if obj is not None:
                if obj.borrows is None:
                    obj.borrows = {}
                obj.borrows[link] = obj.borrows.get(link, 0) + 1
        then(obj is not None)

    def said_unborrow(self, link, fds, oid):
        with self.lock:
            obj = self.objects.get(oid)
            if obj is not None and obj.borrows and link in obj.borrows:
                obj.borrows[link] -= 1
                if not obj.borrows[link]:
                    del obj.borrows[link]
                    self._maybe_free(oid, obj)

    def dropped(self, oid):
        """A reference is gone. This may be called in any thread, between any two of its steps."""
        self.gone.append(oid)
        if not self.dropping and not self.closed:
            self.dropping = True
            try:
                self.loop.later(_DROP, self._drop)
            except BaseException:  # the interpreter ends
                pass

    def _drop(self):
        self.dropping = False
        with self.lock:
            while self.gone:
                what = self.gone.popleft()
                if type(what) is not bytes:
                    self._unhandle(what[0])
                    continue
                local = self.local.get(what)
                if local is None:
                    continue
                local.count -= 1
                if local.count:
                    continue
                del self.local[what]
                obj = self.objects.get(what)
                if obj is not None:
                    self._maybe_free(what, obj)
                elif local.owner[0] != self.proc:
                    link = self.links.get(local.owner[0])
                    if link is not None:
                        link.send("unborrow", what)

    def _maybe_free(self, oid, obj):
        if obj.borrows or oid in self.local:
            return
        if obj.desc is None:
            return  # the task will make the object, which is then freed
        self.objects.pop(oid, None)
        obj.nested = obj.task = None
        if obj.desc[0] == "s" and self.host is not None:
            self._free_copies(oid, list(obj.desc[2]) + list(obj.copies or ()))

    def _free_copies(self, oid, hosts):
        where = {}
        for host in hosts:
            where.setdefault(host[0], []).append(oid)
        self.host.send("free_at", where)

    # Objects

    def put(self, value):
        self.alive()
        if isinstance(value, ObjectRef):
            raise TypeError("Calling 'put' on an ray.ObjectRef is not allowed. If you really want to do this, you can wrap the ray.ObjectRef in a list and call 'put' on it.")
        oid = self.new_id() + b"\1\0\0\0"
        body, buffers, nested = _objects.dumps(value)
        desc = self.store(oid, body, buffers)
        with self.lock:
            obj = self.objects[oid] = Object(desc)
            obj.nested = nested or None
            return self.ref(oid, self.address)

    def promise(self, link, made, op, *args):
        """A reference to the value that a process will answer."""
        self.alive()
        oid = self.new_id() + b"\1\0\0\0"
        with self.lock:
            self.objects[oid] = Object()
            ref = self.ref(oid, self.address)

        def then(value, error, _):
            try:
                if error is not None:
                    raise errors.RaySystemError(str(error))
                body, buffers, _ = _objects.dumps(made(value))
                desc = "v", body, ()
            except Exception as failed:
                desc = "e", errors.dump(failed)
            with self.lock:
                calls = self._settle(oid, desc)
            for do, desc in calls:
                do(desc)

        link.ask(then, op, *args)
        return ref

    def new_id(self):
        return self.base + next(self.numbers).to_bytes(12, "little")

    def store(self, oid, body, buffers):
        """Stores a value, and returns its descriptor. A small value is in the descriptor, a larger
        value is in the node's memory.
        """
        if _objects.size_of(body, buffers) <= _objects.SMALL or self.host is None:
            return "v", body, [bytes(b) for b in buffers] if buffers else ()
        from golaunch.memory import POOL

        (made, size), fds = _objects.parts(body, buffers), ()
        try:
            in_memory, fds = self.ask(self.host, "room", size, late=lambda in_memory: in_memory and self.host.send("unroom", size))
            if in_memory:
                segment = POOL.share(made, _objects._ALIGN)
                fds = [os.dup(segment.fd)]
                self._tidy()
            else:
                _objects.write(fds[0], made)
        except _HostError as error:
            raise errors.ObjectStoreFullError(error.what[1]) from None
        except OSError as error:
            _objects.close_all(fds)
            raise errors.ObjectStoreFullError(f"an object of {size} bytes cannot be written on node {self.node_id}: {error.strerror}") from None
        self.host.send("sealed", oid, size, in_memory, fds=fds)
        _objects.close_all(fds)
        return "s", size, [self.host_address]

    _tidying = False

    def _tidy(self):
        from golaunch.memory import POOL

        if POOL.files and not self._tidying:
            self._tidying = True

            def tidy():
                self._tidying = False
                POOL.tidy()
                self._tidy()

            self.loop.later(_TIDY, tidy)

    def when_ready(self, ref, then):
        """Calls then(descriptor) once an object exists. The call may come at once, and in any
        thread.
        """
        oid = ref._id
        with self.lock:
            if self.closed:
                desc = "e", errors.dump(errors.RaySystemError(self.why_closed or "the cluster is shut down"))
            elif ref._owner[0] == self.proc:
                obj = self.objects.get(oid)
                if obj is None:
                    desc = "e", errors.dump(errors.ReferenceCountingAssertionError(ref.hex()))
                else:
                    desc = obj.desc
                    if desc is None:
                        if obj.waiting is None:
                            obj.waiting = [then]
                        else:
                            obj.waiting.append(then)
                        return
            else:
                desc = None
                local = self.local[oid]
                if local.waiting is not None:
                    local.waiting.append(then)
                    return
                local.waiting = [then]
        if desc is not None:
            then(desc)
            return

        tries = [0]

        def told(value, error, _):
            if error is None:
                deliver(value)
                return
            tries[0] += 1
            self._whether_ended(ref._owner, because)

        def because(why):
            if why is None and tries[0] < _TRIES:
                self.link_to(ref._owner, linked)
            else:
                deliver(("e", errors.dump(self._owner_died(oid, ref._owner, why))))

        def deliver(desc):
            with self.lock:
                waiting, local.waiting = local.waiting, None
            for then in waiting:
                then(desc)

        def linked(link):
            if link is None:
                told(None, ConnectionError(), ())
            else:
                link.ask(told, "value", oid)

        self.link_to(ref._owner, linked)

    def _forget(self, ref, then):
        """Withdraws a callback. The lock is held."""
        known = self.objects.get(ref._id) if ref._owner[0] == self.proc else self.local.get(ref._id)
        if known is not None and known.waiting and then in known.waiting:
            known.waiting.remove(then)

    def on_value(self, link, then, oid):
        with self.lock:
            obj = self.objects.get(oid)
            if obj is not None and obj.desc is None:
                if obj.waiting is None:
                    obj.waiting = []
                obj.waiting.append(then)
                return
        then(obj.desc if obj is not None else ("e", errors.dump(errors.ObjectFreedError(oid.hex()))))

    def descs(self, refs, timeout):
        """The descriptors of objects, once all objects exist."""
        got, left, there = [None] * len(refs), len(refs), None
        with self.lock:
            for i, ref in enumerate(refs):
                if ref._owner[0] == self.proc:
                    obj = self.objects.get(ref._id)
                    if obj is not None and obj.desc is not None and not self.closed:
                        got[i] = obj.desc
                        left -= 1
        if not left:
            return got
        there = _thread.allocate_lock()
        there.acquire()
        done = [left]

        def ready(i):
            def then(desc):
                with self.lock:
                    got[i] = desc
                    done[0] -= 1
                    if done[0]:
                        return
                there.release()

            return then

        asked = [(ref, ready(i)) for i, ref in enumerate(refs) if got[i] is None]
        for ref, then in asked:
            self.when_ready(ref, then)
        came = False
        try:
            came = self._await(there, timeout)
        finally:
            if not came:
                with self.lock:
                    for ref, then in asked:
                        self._forget(ref, then)
        if not came:
            raise errors.GetTimeoutError("Get timed out: some object(s) not ready.")
        return got

    def _await(self, there, timeout):
        if there.acquire(False):
            return True
        if timeout is not None and timeout <= 0:
            return False
        return self.wait_apart(there.acquire, True, -1 if timeout is None else min(timeout, _thread.TIMEOUT_MAX))

    def wait_apart(self, wait, *args):
        """Waits for other tasks. A task that waits lends its CPUs to others meanwhile."""
        waits = self.on_wait
        if waits is not None:
            waits(True)
        try:
            return interruptible_wait(wait, *args)
        finally:
            if waits is not None:
                waits(False)

    def get(self, refs, timeout=None):
        self.alive()
        if threading.current_thread() is self.thread:
            raise RuntimeError("ray.get in the thread that receives")
        return [self.load(ref, desc) for ref, desc in zip(refs, self.descs(refs, timeout))]

    def load(self, ref, desc):
        """The value of a descriptor. If the value is an exception, it is raised."""
        kind = desc[0]
        if kind == "v":
            return _objects.loads(desc[1], [memoryview(b) for b in desc[2]] if desc[2] else ())
        if kind == "e":
            error = _objects.loads(desc[1])
            raise error.as_instanceof_cause() if isinstance(error, errors.RayTaskError) else error
        text, buffers = self.fetch(ref._id, ref._owner, desc)
        return _objects.loads(text, buffers)

    def fetch(self, oid, owner, desc):
        """Maps an object of the node's memory. If need be, the node first gets the object from
        another node.
        """
        local = self.local.get(oid)
        if local is not None and local.view is not None:
            return local.view
        for again in (True, False):
            _, size, hosts = desc
            try:
                copy, fds = self.ask(self.host, "object", oid, size, hosts)
                break
            except _HostError as error:
                if error.what[0] == "full":
                    raise errors.ObjectStoreFullError(error.what[1]) from None
                if not again:
                    raise errors.ObjectLostError(oid.hex(), why=error.what[1]) from None
                desc = self._made_again(oid, owner, hosts, error.what[1])
                if desc[0] != "s":
                    return desc[1], desc[2] if len(desc) > 2 else ()
        try:
            view = _objects.mapped(fds[0], size)
        finally:
            _objects.close_all(fds)
        if copy is not None:
            self.copied(oid, owner, copy)
        with self.lock:
            local = self.local.get(oid)
            if local is not None:
                local.view = view
        return view

    def copied(self, oid, owner, host):
        """Tells an object's owner that another node has a copy, which the owner then also manages.
        """
        with self.lock:
            if owner[0] == self.proc:
                self.said_copied(None, (), oid, host)
                return
            link = self.links.get(owner[0])
        if link is not None:
            link.send("copied", oid, host)

    def said_copied(self, link, fds, oid, host):
        with self.lock:
            obj = self.objects.get(oid)
            if obj is None:
                self._free_copies(oid, [host])
            elif obj.copies is None:
                obj.copies = [host]
            elif host not in obj.copies:
                obj.copies.append(host)
            if obj is not None and obj.desc is not None and obj.desc[0] == "s" and host not in obj.desc[2]:
                obj.desc = "s", obj.desc[1], list(obj.desc[2]) + [host]

    def _made_again(self, oid, owner, hosts, why):
        """An object is on no node any more. Its task makes it again, or the object is lost."""
        there = _thread.allocate_lock()
        there.acquire()
        got = []

        def then(value, error=None, _=()):
            if error is None:
                got.append(value)
                there.release()
            else:
                self._whether_ended(owner, died)

        def died(why):
            got.append(("e", errors.dump(self._owner_died(oid, owner, why))))
            there.release()

        if owner[0] == self.proc:
            self.on_lost(None, then, oid, hosts, why)
        else:
            link = self._owner(owner)
            if link is None:
                self._whether_ended(owner, died)
            else:
                link.ask(then, "lost", oid, hosts, why)
        self._await(there, None)
        if got[0][0] == "e":
            self.load(None, got[0])
        return got[0]

    def on_lost(self, link, then, oid, hosts, why):
        with self.lock:
            obj = self.objects.get(oid)
            lost = {h[0] for h in hosts}
            if obj is None:
                then(("e", errors.dump(errors.ObjectFreedError(oid.hex()))))
                return
            if obj.desc is not None and obj.desc[0] == "s" and {h[0] for h in obj.desc[2]} <= lost:
                task = obj.task
                if task is None or task.retries == 0 or task.stream is not None:
                    then(("e", errors.dump(errors.ObjectLostError(oid.hex(), why=why))))
                    return
                obj.waiting = (obj.waiting or []) + [then]
                self._run_again(task, why)
                return
            if obj.desc is None:
                obj.waiting = (obj.waiting or []) + [then]
                return
        then(obj.desc)

    def _run_again(self, task, why):
        """Runs a finished task again, since its results are lost. If arguments of the task were
        freed, the tasks that made them run first. The lock is held.
        """
        again, found, missing = {task.id: task}, [task], None
        while found and missing is None:
            one = found.pop()
            if one.retries == 0 or one.kept is None or one.body and one.body[0] == "s" and one.body[1] not in self.objects:
                missing = one
            for oid, owner, desc in one.deps:
                if desc[0] == "s" and owner[0] == self.proc and oid not in self.objects and oid[:24] not in again and oid[:24] not in self.tasks:
                    maker = next((m for m in one.makers if m.id == oid[:24]), None)
                    if maker is None:
                        missing = one
                    else:
                        again[maker.id] = maker
                        found.append(maker)
        if missing is not None:
            failed = errors.ObjectReconstructionFailedError(_result_id(task.id, 0).hex(), why=(
                f"{why}, and the arguments of {missing.name} are there no more, or it may not run again (max_retries)"))
            calls = []
            for i in range(task.count):
                calls += self._settle(_result_id(task.id, i), ("e", errors.dump(failed)))
            self.loop.soon(lambda: [then(desc) for then, desc in calls])
            return
        for one in again.values():
            if one.retries > 0:
                one.retries -= 1
            self.tasks[one.id] = one
            one.cancelled, one.ready = False, False
            for i in range(one.count):
                oid = _result_id(one.id, i)
                obj = self.objects.setdefault(oid, Object(None, one))
                if obj.desc is not None and obj.desc[0] == "s":
                    self._free_copies(oid, obj.desc[2])
                obj.desc = None
        for one in again.values():
            one.pins = [self.ref(oid, owner) for oid, owner, desc in one.deps if desc[0] == "s" and owner[0] == self.proc]
        for one in again.values():
            self._once_there(one)

    def _once_there(self, task):
        """Submits a task again once its arguments exist."""
        left = [len(task.pins)]
        if not task.pins:
            task.ready = True
            self.submit_again(task)

        def there(desc, oid):
            with self.lock:
                task.deps = [(o, owner, desc if o == oid else d) for o, owner, d in task.deps]
                left[0] -= 1
                if left[0]:
                    return
                failed = next((d for _, _, d in task.deps if d[0] == "e"), None)
                if failed is None:
                    task.ready = True
                    self.submit_again(task)
                    return
            self._finish(task, failed)

        for ref in task.pins:
            self.when_ready(ref, lambda desc, oid=ref._id: there(desc, oid))

    def _keep(self, task):
        """Keeps a finished task for as long as its results live, but not the values of its
        arguments. The lock is held.
        """
        task.makers = [obj.task for obj in (self.objects.get(oid) for oid, owner, desc in task.deps if desc[0] == "s") if obj is not None and obj.task is not None]
        task.pins = ()
        if task.kept is None:
            size = _TASK + (len(task.body[1]) + sum(map(len, task.body[2])) if task.body and task.body[0] == "v" else 0)
            task.kept = Kept(self, size + sum(len(desc[1]) for _, _, desc in task.deps if desc[0] == "v"))
            self.kept.append(weakref.ref(task))
        while self.kept and (self.lineage > _LINEAGE or len(self.kept) > 1000 and self.kept[0]() is None):
            old = self.kept.popleft()()
            if old is not None:  # it is not made again
                old.kept, old.body, old.deps, old.makers = None, None, (), ()

    def wait(self, refs, count, timeout):
        self.alive()
        end = None if timeout is None else time.monotonic() + timeout
        there = _thread.allocate_lock()
        there.acquire()
        ready, told, lock = set(), [False], threading.Lock()

        def then(i):
            def do(_):
                with lock:
                    ready.add(i)
                    if len(ready) < count or told[0]:
                        return
                    told[0] = True
                there.release()

            return do

        asked = [then(i) for i in range(len(refs))]
        for ref, do in zip(refs, asked):
            self.when_ready(ref, do)
        self._await(there, None if end is None else max(0, end - time.monotonic()))
        with lock:
            told[0] = True
            done = sorted(ready)[:count]
        chosen = set(done)
        with self.lock:
            for i, ref in enumerate(refs):
                if i not in chosen:
                    self._forget(ref, asked[i])
        return [refs[i] for i in done], [r for i, r in enumerate(refs) if i not in chosen]

    def _settle(self, oid, desc, nested=None):
        """An object now exists. The lock is held."""
        obj = self.objects.get(oid)
        if obj is None:
            if desc[0] == "s":
                self._free_copies(oid, desc[2])
            return ()
        obj.desc, obj.nested = desc, nested
        if desc[0] != "s":
            obj.task = None
        waiting, obj.waiting = obj.waiting, None
        self._maybe_free(oid, obj)
        return [(then, desc) for then in waiting] if waiting else ()

    # Tasks

    def arguments(self, args, kwargs):
        """The parts of a call's arguments that are sent, the references among the arguments, and
        the references inside other arguments; these must live as long as the call.
        """
        deps = []
        if not kwargs and not args:
            return None, deps, ()
        slots = []
        for i, value in enumerate(args):
            if type(value) is ObjectRef:
                slots.append((i, len(deps)))
                deps.append(value)
        for name, value in kwargs.items():
            if type(value) is ObjectRef:
                slots.append((name, len(deps)))
                deps.append(value)
        if deps:
            for ref in deps:
                if ref._core is not self:
                    ref._core.alive()
            args, kwargs = list(args), dict(kwargs)
            for where, _ in slots:
                if type(where) is int:
                    args[where] = None
                else:
                    kwargs[where] = None
            args = tuple(args)
        if not kwargs and _objects.plain(args):
            return ("v", _objects._pickle.dumps((args, kwargs), 5), (), slots), deps, ()
        body, buffers, nested = _objects.dumps((args, kwargs))
        pins = list(nested)
        if _objects.size_of(body, buffers) > _objects.SMALL and self.host is not None:
            oid = self.new_id() + b"\1\0\0\0"
            desc = self.store(oid, body, buffers)
            with self.lock:
                self.objects[oid] = Object(desc)
                pins.append(self.ref(oid, self.address))
            return ("s", oid, desc, slots), deps, pins
        return ("v", body, [bytes(b) for b in buffers] if buffers else (), slots), deps, pins

    def pool(self, key, want, strategy, env):
        pool = self.pools.get(key)
        if pool is None:
            with self.lock:
                pool = self.pools.setdefault(key, Pool(key, want, strategy, env))
        return pool

    def submit(self, task, args, kwargs):
        """Sends a task to a process, and returns references to the task's results."""
        if self.closed or self.interrupt is not None:
            self.alive()
        if self._head is None:
            self.head  # the head may have to be connected, which must not happen under the lock
        task.body, task.deps, task.pins = self.arguments(args, kwargs)
        if task.id is None:
            task.id = self.new_id()
        with self.lock:
            self.tasks[task.id] = task
            refs = []
            if task.stream is None:
                for i in range(task.count):
                    oid = _result_id(task.id, i)
                    self.objects[oid] = Object(None, task)
                    refs.append(self.ref(oid, self.address))
            if task.actor is not None:  # calls keep their order, whenever their arguments are ready
                task.ready = not task.deps
                task.actor.queue.append(task)
        if task.deps:
            self._resolve(task)
        else:
            with self.lock:
                self._pump(task)
        return refs

    def submit_again(self, task):
        """The lock is held."""
        self.tasks[task.id] = task
        if task.actor is not None:
            task.actor.queue.append(task)
            self._pump_actor(task.actor)
        else:
            task.pool.queue.appendleft(task)
            self._pump_pool(task.pool)

    def _resolve(self, task):
        """Waits for the objects that are arguments."""
        task.ready, task.want_deps = False, len(task.deps)
        refs, descs = task.deps, [None] * len(task.deps)

        def ready(i):
            def then(desc):
                with self.lock:
                    descs[i] = desc
                    task.want_deps -= 1
                    if task.want_deps or task.cancelled:
                        return
                    failed = next((d for d in descs if d[0] == "e"), None)
                    task.pins = list(task.pins) + list(refs)
                    task.deps, task.ready = [(r._id, r._owner, d) for r, d in zip(refs, descs)], True
                    if failed is None:
                        self._pump(task)
                        return
                    if task.actor is not None and task in task.actor.queue:
                        task.actor.queue.remove(task)
                self.apart(self._without_argument, task, failed)

            return then

        task.deps = ()
        for i, ref in enumerate(refs):
            self.when_ready(ref, ready(i))

    def _without_argument(self, task, failed):
        """An argument is an exception, whose class may be the user's."""
        try:
            error = _objects.loads(failed[1])
            if not isinstance(error, errors.RayTaskError):
                text = f"  At least one of the input arguments for this task could not be computed:\n{type(error).__name__}: {error}"
                failed = "e", errors.dump(errors.RayTaskError(task.name, text, error, proctitle=f"ray::{task.name}()", ip=self.address[2]))
        except Exception:  # the exception's class is not known here: the caller that gets the exception finds that out
            pass
        self._finish(task, failed)

    def _pump(self, task):
        if task.actor is not None:
            self._pump_actor(task.actor)
        else:
            task.pool.queue.append(task)
            self._pump_pool(task.pool)

    def _pump_pool(self, pool):
        """Sends tasks to processes that can take one, and asks for more processes. The lock is
        held.
        """
        queue = pool.queue
        leases = [x for x in pool.leases.values() if not x.stalled]
        while queue and leases:
            lease = min(leases, key=_busy) if len(leases) > 1 else leases[0]
            if len(lease.tasks) >= (pool.depth if queue[0].retries else 1):  # a task that may run only once is not sent ahead
                break
            self._send(queue.popleft(), lease)
        wanted = min(len(queue), _ASKED) - pool.asked
        if wanted > 0:
            what = queue[0].name
            for _ in range(wanted):
                self.head.ask(lambda value, error, _: self._leased(pool, value, error), "lease", pool.want, pool.strategy, self.job["id"], pool.env, what)
                pool.asked += 1

    def _leased(self, pool, value, error):
        if error is not None:
            with self.lock:
                pool.asked -= 1
                failed, pool.queue = list(pool.queue), deque()
            if isinstance(error, ConnectionError):
                error = errors.RaySystemError(self.why_closed or "the head of the cluster has ended" + _WHY)
            for task in failed:
                self._fail(task, error)
            return
        number, address, gpus = value
        with self.lock:
            if not pool.queue:
                pool.asked -= 1
                self.head.send("release", number)
                return

        def linked(link):
            with self.lock:
                pool.asked -= 1
                if link is None or link.closed:  # the process has just died
                    self.head.send("release", number)
                    pool.gone += 1
                    if pool.gone % _GONE == 0 and pool.queue:
                        lost = pool.queue.popleft()
                        self.apart(self._fail, lost, errors.WorkerCrashedError())
                    self._pump_pool(pool)
                    return
                pool.gone = 0
                lease = pool.leases[number] = Lease(number, address, gpus, link, pool)
                self._pump_pool(pool)
                self._rest(lease)

        self.link_to(address, linked)

    def _send(self, task, lease):
        task.lease, task.link = lease, lease.link
        lease.tasks[task.id] = task
        key = lease.link, task.fid
        function = None
        if key not in self.sent:
            self.sent[key] = True
            function = task.function
        lease.link.send("T", task.id, task.fid, function, task.body, task.deps, task.count, task.name, lease.gpus, self.address, task.stream is not None,
                        task.pool.strategy if task.pool.strategy[0] == "group" else None)

    def _rest(self, lease):
        """Gives back a process without a task, at once or after a while. The lock is held."""
        if lease.tasks:
            return
        if lease.pool.idle:
            lease.idle = time.monotonic()
            self._reap_later()
        elif lease.pool.leases.pop(lease.number, None) is not None:
            self.head.send("release", lease.number)

    def _result(self, link, task_id, outs, seconds, began=None, error=None):
        """A task is done. outs has the descriptors of its results, with the references in them."""
        calls = ()
        with self.lock:
            task = self.tasks.get(task_id)
            if task is None:
                return
            self.notes.over(task, error, began, seconds)
            lease, actor = task.lease, task.actor
            if lease is not None:
                lease.tasks.pop(task_id, None)
                lease.stalled = False
                pool = lease.pool
                if seconds < _SHORT:
                    pool.depth = min(_DEPTH, pool.depth * 2)
                else:
                    pool.depth = 1
            elif actor is not None:
                actor.tasks.pop(task_id, None)
            again = len(outs) == 1 and outs[0][0][0] == "e" and not task.cancelled and task.stream is None and self._retried(task, outs[0][0])
            if not again and not task.stream:
                calls = self._done(task, outs, link)
            if lease is not None:
                if lease.pool.queue:
                    self._pump_pool(lease.pool)
                self._rest(lease)
            elif actor is not None:
                self._maybe_unhold(actor)
        if task.stream and not again:
            self._stream_over(task, outs)
        for then, desc in calls:
            then(desc)

    def _done(self, task, outs, link):
        """The lock is held."""
        self.tasks.pop(task.id, None)
        if task.stream is None and task.retries != 0 and any(desc[0] == "s" for desc, _ in outs):  # only a result that may be lost is made again
            self._keep(task)
        else:
            task.pins, task.deps = (), ()
        calls = []
        if len(outs) == 1 and task.count > 1 and outs[0][0][0] == "e":
            outs = outs * task.count
        for i, (desc, tokens) in enumerate(outs):
            oid = _result_id(task.id, i)
            nested = None
            if tokens:
                nested = self._hold_nested(tokens, link, task.id)
            calls.extend(self._settle(oid, desc, nested))
        task.lease = task.link = None
        return calls

    def _hold_nested(self, tokens, link, task_id):
        """Holds the references and actors in a result for as long as the result lives. The worker
        keeps its own until it hears that they are held.
        """
        holds, left = [], [len(tokens)]

        def held(_value=None, _error=None, _=()):
            left[0] -= 1
            if not left[0]:
                link.send("got", task_id)

        for kind, what, owner in tokens:
            if kind == "actor":
                holds.append(_Held(self, what))
                self.head.ask(held, "hold", what)
            elif owner[0] == self.proc or what in self.local:
                holds.append(self.ref(what, owner))
                held()
            else:
                holds.append(self.ref(what, owner))

                def linked(other, what=what):
                    if other is None:
                        held()
                    else:
                        other.ask(held, "borrow", what)

                self.link_to(owner, linked)
        return holds

    def said_got(self, link, fds, task_id):
        self.held_results.pop((link, task_id), None)

    def _finish(self, task, desc, error=None):
        with self.lock:
            self.notes.over(task, error or ("ACTOR_DIED" if task.actor is not None else "TASK_EXECUTION_EXCEPTION", ""))
            if task.stream is None:
                calls = self._done(task, [(desc, ())] * max(1, task.count), None)
            else:
                self.tasks.pop(task.id, None)
                calls = ()
        if task.stream is not None:
            self._stream_over(task, [(desc, ())])
        for then, desc in calls:
            then(desc)

    def _fail(self, task, error):
        self._finish(task, ("e", errors.dump(error)), _history.failed(error))

    def _retried(self, task, desc):
        """Whether a task is tried again after its exception. The lock is held."""
        if not task.retry_exceptions or task.retries == 0:
            return False
        if task.retry_exceptions is not True:
            try:
                error = _objects.loads(desc[1])
            except Exception:
                return False
            cause = error.cause if isinstance(error, errors.RayTaskError) else error
            if not isinstance(cause, tuple(task.retry_exceptions)):
                return False
        if task.retries > 0:
            task.retries -= 1
        task.lease = task.link = None
        self.submit_again(task)
        return True

    def _lease_lost(self, lease):
        """A process has died, and with it its first task. Its other tasks had not begun."""
        failed = []
        with self.lock:
            pool = lease.pool
            pool.leases.pop(lease.number, None)
            tasks = list(lease.tasks.values())
            lease.tasks.clear()
            for i, task in reversed(list(enumerate(tasks))):
                task.link = None
                if task.cancelled:
                    failed.append((task, errors.TaskCancelledError(_hex(task))))
                elif i > 0 or task.retries != 0:
                    if i == 0:
                        task.retries -= task.retries > 0
                        self.notes.over(task, ("WORKER_DIED", ""))
                    task.lease = None
                    pool.queue.appendleft(task)
                else:
                    failed.append((task, errors.WorkerCrashedError()))
            pool.depth = 1
            self.head.send("release", lease.number, True)
            if pool.queue:
                self._pump_pool(pool)
        for task, error in failed:
            self._fail(task, error)

    def said_unstarted(self, link, fds, ids):
        """A worker gives back tasks that have not begun, since its running task takes long or waits
        for others.
        """
        cancelled, pool = [], None
        with self.lock:
            for task_id in reversed(ids):
                task = self.tasks.get(task_id)
                if task is None or task.lease is None:
                    continue
                lease, pool = task.lease, task.lease.pool
                lease.tasks.pop(task_id, None)
                lease.stalled = bool(lease.tasks)  # the answer of the running task may have arrived before this message
                pool.depth = 1
                task.lease = task.link = None
                if task.cancelled:
                    cancelled.append(task)
                else:
                    pool.queue.appendleft(task)
            if pool is not None:
                self._pump_pool(pool)
                self._rest(lease)
        for task in cancelled:
            self._fail(task, errors.TaskCancelledError(_hex(task)))

    def _reap_later(self):
        if not self.reaping:
            self.reaping = True
            self.loop.later(_IDLE, self._reap)

    def _reap(self):
        now, left = time.monotonic(), False
        with self.lock:
            self.reaping = False
            for pool in self.pools.values():
                for lease in list(pool.leases.values()):
                    if lease.tasks:
                        continue
                    if now - lease.idle >= pool.idle and not pool.queue:
                        del pool.leases[lease.number]
                        self.head.send("release", lease.number)
                    else:
                        left = True
            if left:
                self._reap_later()

    def cancel(self, ref, force, recursive):
        """Cancels the task that makes an object."""
        self.alive()
        task_id = ref._id[:24]
        with self.lock:
            if ref._owner[0] != self.proc:
                link = self.links.get(ref._owner[0])
                if link is not None:
                    link.send("cancel_owned", ref._id, force, recursive)
                return
            task = self.tasks.get(task_id)
            if task is None:
                return
            if force and task.actor is not None:
                raise ValueError("force=True is not supported for actor tasks.")
            task.cancelled = True
            if task.link is not None:
                task.link.send("C", task_id, force, recursive)
                return
            if task.pool is not None and task in task.pool.queue:
                task.pool.queue.remove(task)
            if task.actor is not None and task in task.actor.queue:
                task.actor.queue.remove(task)
        self._fail(task, errors.TaskCancelledError(_hex(task)))

    def said_cancel_owned(self, link, fds, oid, force, recursive):
        if oid in self.objects:
            self.cancel(_Named(oid, self.address), force, recursive)

    def said_C(self, link, fds, task_id, force, recursive):
        self.executor.cancel(link, task_id, force)
        if recursive:
            with self.lock:
                children = [t for t in self.tasks.values() if t.parent == task_id]
            for task in children:
                self.cancel(_Named(_result_id(task.id, 0), self.address), force and task.actor is None, recursive)

    # Streams of results

    def said_I(self, link, fds, task_id, index, out):
        with self.lock:
            task, oid = self.tasks.get(task_id), _result_id(task_id, index)
            again = task is not None and index < task.stream.came_so_far  # its first process has died
            if task is None or again:
                if again and oid in self.objects:
                    self.objects[oid].desc = out[0]
                elif out[0][0] == "s":
                    self._free_copies(oid, out[0][2])
                if out[1]:
                    link.send("got", (task_id, index))
                return
            self.objects[oid] = Object(out[0])
            ref = self.ref(oid, self.address)
            if out[1]:
                self.objects[oid].nested = self._hold_nested(out[1], link, (task_id, index))
        task.stream.came(ref)

    def _stream_over(self, task, outs):
        with self.lock:
            self.tasks.pop(task.id, None)
            task.pins, task.deps = (), ()
            ref = None
            if outs and outs[0][0][0] == "e":
                oid = self.new_id() + b"\1\0\0\0"
                self.objects[oid] = Object(outs[0][0])
                ref = self.ref(oid, self.address)
        if ref is not None:
            task.stream.came(ref)
        task.stream.over()

    # Actors

    def actor(self, actor_id, meta):
        """An actor, for a new handle that this process already holds."""
        with self.lock:
            actor = self.actors.get(actor_id)
            if actor is None:
                actor = self.actors[actor_id] = ActorLink(actor_id, meta)
            actor.handles += 1
            actor.closing = False
            return actor

    def resolve_actor(self, actor, body, deps):
        """Has the head start an actor once its arguments are there."""
        refs, descs, left = list(deps), [None] * len(deps), [len(deps)]
        actor.pins = [*actor.pins, *refs]

        def ready(i):
            def then(desc):
                with self.lock:
                    descs[i] = desc
                    left[0] -= 1
                    if left[0]:
                        return
                failed = next((d for d in descs if d[0] == "e"), None)
                if failed is not None:
                    self.head.send("actor_failed", actor.id, failed)
                else:
                    self.head.send("actor_body", actor.id, (body, [(r._id, r._owner, d) for r, d in zip(refs, descs)]))

            return then

        for i, ref in enumerate(refs):
            self.when_ready(ref, ready(i))

    def hold_actor(self, actor_id, meta):
        """An actor, for a handle that another process has sent."""
        with self.lock:
            self.alive()
            if actor_id in self.actors and self.actors[actor_id].handles:
                return self.actor(actor_id, meta)
        self.ask(self.head, "hold", actor_id, late=lambda _: self.head.send("unhold", actor_id))
        with self.lock:
            if actor_id in self.actors and self.actors[actor_id].handles:
                self.head.send("unhold", actor_id)
            return self.actor(actor_id, meta)

    def _unhandle(self, actor_id):
        actor = self.actors.get(actor_id)
        if actor is not None:
            actor.handles -= 1
            if actor.handles <= 0:
                actor.closing = True
                self._maybe_unhold(actor)

    def _maybe_unhold(self, actor):
        """Tells the head that the last handle is gone, once all calls are answered."""
        if actor.closing and not actor.tasks and not actor.queue and not actor.handles:
            actor.closing = False
            self.actors.pop(actor.id, None)
            if not self.closed:
                self.head.send("unhold", actor.id)

    def _pump_actor(self, actor):
        if actor.state == "alive":
            while actor.queue and actor.queue[0].ready:
                self._call(actor, actor.queue.popleft())
        elif actor.state == "unknown" and actor.queue:
            actor.state = "asking"
            self.head.ask(lambda value, error, _: self._where(actor, value, error), "where", actor.id, actor.restarts)
        elif actor.state == "dead":
            self._actor_dead(actor)

    def _call(self, actor, task):
        actor.tasks[task.id] = task
        task.link = actor.link
        actor.link.send("M", task.id, task.method, task.body, task.deps, task.count, self.address, task.stream is not None, task.name)

    def _where(self, actor, value, error):
        if error is not None:
            value = "dead", self.why_closed or f"the head of the cluster does not say where it is: {error}", None, 0
        if value[0] == "dead":
            _, why, desc, _ = value
            if desc is not None:
                actor.error = desc if isinstance(desc, tuple) else ("e", errors.dump(desc))
            else:
                name, namespace = actor.meta.get("name"), actor.meta.get("namespace")
                actor.error = "e", errors.dump(errors.ActorDiedError(
                    why, actor_id=actor.id.hex(), class_name=actor.meta["class"], name=name or "", namespace=namespace if name else ""))
            actor.state = "dead"
            self._actor_dead(actor)
            return
        _, address, restarts = value

        def linked(link):
            with self.lock:
                if link is None or link.closed:
                    actor.tries = actor.tries + 1 if restarts == actor.restarts else 1
                    actor.restarts = restarts
                    self._lost_calls(actor)
                    return
                actor.tries = 0
                actor.state, actor.link, actor.address, actor.restarts = "alive", link, address, restarts
                self._pump_actor(actor)
                self._maybe_unhold(actor)

        self.link_to(address, linked)

    def _actor_dead(self, actor):
        with self.lock:
            tasks = list(actor.tasks.values()) + list(actor.queue)
            actor.tasks.clear()
            actor.queue.clear()
        for task in tasks:
            self._finish(task, ("e", errors.dump(errors.TaskCancelledError(_hex(task)))) if task.cancelled else actor.error)
        with self.lock:
            self._maybe_unhold(actor)

    def _actor_lost(self, actor):
        with self.lock:
            actor.link = None
            self._lost_calls(actor)

    def _lost_calls(self, actor):
        """The connection to an actor has ended. The head says whether the actor is dead or starts
        again.
        """
        actor.state = "asking"

        def told(value, error, _):
            failed, why = [], "its process has died, and it was started again"
            with self.lock:
                if error is None and value[0] == "alive":
                    again = []
                    if value[2] == actor.restarts:
                        why = f"the connection to its process on node {value[1][1]} ({value[1][2]}) has ended, although that lives"
                        if actor.tries >= _TRIES:  # callers of calls that were not sent are told too
                            actor.tries = 0
                            actor.tasks.update((t.id, t) for t in actor.queue)
                            actor.queue.clear()
                    for task in actor.tasks.values():
                        task.link = None
                        if task.retries != 0:
                            task.retries -= 1 if task.retries > 0 else 0
                            again.append(task)
                        else:
                            failed.append(task)
                    actor.tasks.clear()
                    actor.queue.extendleft(reversed(again))
            self._where(actor, value, error)
            for task in failed:
                self._fail(task, errors.ActorUnavailableError(why, actor.id.hex()))

        self.head.ask(told, "where", actor.id, actor.restarts)


def interruptible_wait(wait, *args):
    """The only step of this module that a cancellation interrupts."""
    return wait(*args)


_WHOLE = {interruptible_wait.__code__.co_filename, _wire.Loop.run.__code__.co_filename}


def interruptible(frame, root=None):
    """Whether an exception may end the code below a function, or in the whole thread. In a step of
    _core or _wire, an exception would leave half a message, or a lock; in a finalizer, it would be
    swallowed.
    """
    waits = False
    while frame is not None and (root is None or frame.f_code is not root.__code__):
        waits = waits or frame.f_code is interruptible_wait.__code__
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _WHOLE and not waits:
            return False
        frame = frame.f_back
    return True


class Guarded:
    """A signal's handler that may raise, such as the handler of ^C. It waits for the end of a step
    that must not be interrupted.
    """

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        if interruptible(frame):
            return self.handler(number, frame)
        _thread.start_new_thread(self._again, (number,))

    @staticmethod
    def _again(number):
        time.sleep(_LATER)
        signal.pthread_kill(threading.main_thread().ident, number)


def guard(on):
    """Makes this program's present handlers wait as Guarded does, or makes them wait no more."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if on and callable(handler) and type(handler) is not Guarded:
                signal.signal(number, Guarded(handler))
            elif not on and type(handler) is Guarded:
                signal.signal(number, handler.handler)


class _Held:
    """Marks an actor as held by a result."""

    def __init__(self, core, actor):
        self.core, self.actor = core, actor

    def __del__(self):
        core = self.core
        if not core.closed:
            try:
                core.head.send("unhold", self.actor)
            except Exception:
                pass


class _Named:
    def __init__(self, oid, owner):
        self._id, self._owner = oid, owner


class _HostError(Exception):
    """A host has answered with an error."""

    def __init__(self, what):
        super().__init__(what)
        self.what = what


def _busy(lease):
    return len(lease.tasks)


def _result_id(task_id, index):
    return task_id + (index + 1).to_bytes(4, "little")


def _hex(task):
    return f"TaskID({task.id.hex()})"

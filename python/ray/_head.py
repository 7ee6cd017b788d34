"""The head of a session: it owns who has which resources, which actors there are, and their names.

It is a part of the first node's host and runs in its loop. It decides where a process starts, and
takes no part in calls: these go from caller to callee.
"""

import itertools
import sys
import time
from collections import OrderedDict

from . import _history
from ._core import base_of

_EPSILON = 1e-6
_KEPT = 1000  # finished actors, placement groups, drivers and nodes that are kept, to answer questions about them
_JOIN = 60.0  # seconds in which the first driver of a cluster's session must join
_UNUSED = 0.5  # seconds that a cluster's session lives without a driver or anything detached
_SILENT = 5.0  # seconds that a request waits for resources until its driver is told why
_REPORT = 0.5  # seconds in which a host says that a process has ended, after a connection to the process has ended


def fits(want, have):
    return all(have.get(name, 0) + _EPSILON >= amount for name, amount in want.items() if amount)


def take(want, have, sign=-1):
    for name, amount in want.items():
        if amount:
            have[name] = round(have.get(name, 0) + sign * amount, 4)


class Node:
    def __init__(self, facts, link):
        self.id, self.address, self.link, self.facts = facts["id"], facts["address"], link, facts
        self.total = dict(facts["resources"])
        self.free = dict(self.total)
        self.labels = facts.get("labels", {})
        self.gpus = facts.get("gpus") or list(range(int(self.total.get("GPU", 0))))
        self.gpu_free = [1.0] * len(self.gpus)
        self.alive, self.why = True, ""

    def use(self):
        """The largest share of a resource that is in use."""
        return max([1 - self.free[r] / n for r, n in self.total.items() if n and r in ("CPU", "GPU", "memory")], default=0)


class Lease:
    """Resources of a node for a task's or an actor's process."""

    def __init__(self, number, node, want, gpus, bundle, link, job, process=None):
        self.number, self.node, self.want, self.gpus, self.bundle, self.link, self.job, self.process = number, node, want, gpus, bundle, link, job, process
        self.lent = 0  # how often a waiting task has given back its CPUs


class Request:
    def __init__(self, link, creator, want, strategy, job, then, what):
        self.link, self.creator, self.want, self.strategy, self.job, self.then, self.what = link, creator, want, strategy, job, then, what
        self.since = time.monotonic()


class Actor:
    def __init__(self, actor, spec, link, creator):
        self.id, self.spec, self.creator = actor, spec, creator
        self.name, self.namespace, self.job, self.detached = spec["name"], spec["namespace"], spec["job"], spec["detached"]
        self.state, self.why, self.restarts = "DEPENDENCIES_UNREADY", "", 0
        self.body = None  # the message for the actor's process, once the arguments are there
        self.process, self.lease, self.request = None, None, None
        self.holders, self.waiting, self.error = {}, [], None
        self.leaving = False  # the actor ends in order
        self.pid, self.made, self.began, self.ended = None, time.time(), None, None  # of the actor's process, and the time when its constructor was called


class Group:
    """A placement group."""

    def __init__(self, group, bundles, strategy, name, detached, job, link):
        self.id, self.bundles, self.strategy, self.name, self.detached, self.job, self.link = group, bundles, strategy, name, detached, job, link
        self.state, self.nodes, self.free, self.gpu_free, self.waiting = "PENDING", [], [], [], []
        self.since = time.monotonic()


class Head:
    def __init__(self, host):
        self.host, self.loop = host, host.loop
        self.nodes, self.leases, self.actors, self.names, self.groups, self.jobs = OrderedDict(), {}, OrderedDict(), {}, OrderedDict(), OrderedDict()
        self.requests = []
        self.placing = self.again = self.looking = False
        self.told_why = set()  # the waiting requests that drivers have been told about
        self.numbers = itertools.count(1)
        self.turn = 0  # the next node for SPREAD
        self.missing, self.waiting = host.config["hosts"], []  # nodes that have not joined yet, and drivers that wait for them
        self.drivers = itertools.count(1)
        self.history = _history.History()
        self.ended, self.asked_of = OrderedDict(), {}  # why the last processes have ended, and who waits to hear why a process has ended
        self.over, self.ending = False, None
        if host.config["job"]:
            self._unused(_JOIN)

    # Nodes

    def joined(self, facts, link):
        node = Node(facts, link)
        self.nodes[node.id] = node
        _forget(self.nodes, [n.id for n in self.nodes.values() if not n.alive])
        self.missing -= 1
        if self.missing <= 0:
            waiting, self.waiting = self.waiting, []
            for do in waiting:
                do()
        self._place()

    def said_node(self, link, facts):
        link.node = facts["id"]
        self.joined(facts, _Far(link))

    def left(self, link):
        node = self.nodes.get(getattr(link, "node", None))
        if node is not None:
            self._node_gone(node, "its host has ended, or its connection to the head")
        job = next((j for j in self.jobs.values() if j["link"] is link and j["alive"]), None)
        if job is not None:
            self._job_over(job)
            self._owner_gone(job["driver"])
        for lease in [x for x in self.leases.values() if x.link is link]:  # the caller that would get the results is gone
            self._end_process(lease)
            self._free(lease)
        self.requests = [r for r in self.requests if r.link is not link or r.link is None]
        for actor in list(self.actors.values()):
            if link.peer is not None and actor.creator == link.peer and not actor.detached:
                self._actor_over(actor, "The actor is dead because its owner has died.")
            elif actor.holders.pop(link, None) is not None:
                self._unheld(actor)
        self._place()

    def _node_gone(self, node, why):
        node.alive, node.why = False, why
        for lease in [x for x in self.leases.values() if x.node is node]:
            self._free(lease)
        for actor in list(self.actors.values()):
            if actor.process is not None and actor.process[1] == node.id:
                self._actor_ended(actor, f"its node {node.id} ({node.address[2]}) was lost")
        for group in self.groups.values():
            for i in [i for i, n in enumerate(group.nodes) if n is node]:  # the other bundles stay where they are
                group.state, group.nodes[i], group.free[i], group.gpu_free[i], group.since = "RESCHEDULING", None, {}, {}, time.monotonic()
        self._everywhere("owner_gone", base_of(None, node.id))  # the objects that its processes owned
        self._place()

    def _everywhere(self, op, *args):
        for node in self.nodes.values():
            if node.alive:
                node.link.do(None, op, *args)

    # Questions and messages

    def asked(self, link, then, op, args):
        try:
            getattr(self, "on_" + op)(link, then, *args)
        except Exception as error:
            then(error=error)

    def said(self, link, op, args):
        getattr(self, "said_" + op)(link, *args)

    def told(self, node, op, args):
        """A host reports about its processes."""
        if op == "free":
            other = next((n for n in self.nodes.values() if n.address[0] == args[0] and n.alive), None)
            if other is not None:
                other.link.do(None, "free", args[1])
        else:
            getattr(self, "told_" + op)(*args)

    def said_host(self, link, node, op, args):
        self.told(node, op, args)

    # Drivers

    def on_driver(self, link, then, address, namespace, facts):
        """A driver joins, once all nodes have."""
        if link.closed:
            return
        if self.missing > 0:
            self.waiting.append(lambda: self.on_driver(link, then, address, namespace, facts))
            return
        if self.over:
            then(None)
            return
        job = f"{next(self.drivers):02x}000000"
        needed = {a.job for a in self.actors.values() if a.state != "DEAD"}
        _forget(self.jobs, [j["id"] for j in self.jobs.values() if not j["alive"] and j["id"] not in needed])
        self.jobs[job] = {"id": job, "link": link, "driver": address, "namespace": namespace, "alive": True, **facts}
        link.peer = address[0]
        then(job)

    def _job_over(self, job):
        job["alive"] = False
        detached, live = self._detached()
        for actor in list(self.actors.values()):
            if actor.job == job["id"] and actor.id not in detached:
                self._actor_over(actor, "The actor is dead because its owner has died.")
        for group in list(self.groups.values()):
            if group.job == job["id"] and not group.detached and group.link.peer not in live:
                self._remove(group)
        self.requests = [r for r in self.requests if r.job != job["id"] or r.creator in live or r.creator in detached]
        for lease in [x for x in self.leases.values() if x.job == job["id"] and (x.process is None or x.process[0] not in live)]:
            self._free(lease)
        self._everywhere("job_over", job["id"], live)
        self._unused(_UNUSED)

    def _detached(self):
        """The detached actors, their processes, and everything that both have started. These do not
        end with their driver.
        """
        actors = {a.id for a in self.actors.values() if a.detached and a.state != "DEAD"}
        live = {a.process[0] for a in self.actors.values() if a.id in actors and a.process is not None}
        while True:
            more = {a.id for a in self.actors.values() if a.creator in live and a.state != "DEAD"} - actors
            procs = {a.process[0] for a in self.actors.values() if a.id in more and a.process is not None}
            procs |= {x.process[0] for x in self.leases.values() if x.process is not None and x.link is not None and x.link.peer in live}
            if not more and procs <= live:
                return actors, live
            actors |= more
            live |= procs

    def _unused(self, seconds):
        """Ends a cluster's session, unless a driver needs it by then."""
        if not self.host.config["job"]:
            return
        if self.ending is not None:
            self.ending[2] = None

        def check():
            self.ending = None
            if (any(j["alive"] for j in self.jobs.values()) or any(a.detached and a.state != "DEAD" for a in self.actors.values())
                    or any(g.detached and g.state != "REMOVED" for g in self.groups.values())):
                return
            self.over = True
            for node in reversed(self.nodes.values()):  # the head's own node is the first
                if node.alive:
                    node.link.do(None, "leave")

        self.ending = self.loop.later(seconds, check)

    # Resources

    def on_lease(self, link, then, want, strategy, job, env, what):
        def granted(lease):
            def got(address=None, error=None, _=()):
                if error is None and lease.number in self.leases:
                    lease.process = address
                    then((lease.number, address, lease.gpus))
                elif error is None or isinstance(error, ConnectionError):  # the caller, the placement group or the node is gone
                    if error is None:
                        lease.node.link.do(None, "idle", address[0])
                    if not link.closed:
                        self.loop.soon(lambda: self._request(request))
                else:
                    self._free(lease)
                    then(error=error)
                    self._place()

            lease.node.link.do(got, "worker", self._job(job), env)

        request = Request(link, link.peer, want, strategy, job, lambda lease=None, error=None: then(error=error) if error else granted(lease), what)
        self._request(request)

    def _job(self, job):
        facts = self.jobs[job]
        return {key: facts[key] for key in ("id", "driver", "namespace", "path", "main", "log", "dir", "python")}

    def said_release(self, link, number, broken=False):
        """A caller has no more tasks for a process, or the caller's connection to the process has
        ended.
        """
        lease = self.leases.get(number)
        if lease is not None:
            self._free(lease)
            if broken:
                self._end_process(lease)
            elif lease.process is not None and lease.node.alive:
                lease.node.link.do(None, "idle", lease.process[0])
            self._place()

    def said_waits(self, link, proc, waits):
        """A task starts to wait for other tasks, which may need its CPUs, or it goes on."""
        for lease in self.leases.values():
            if lease.process is not None and lease.process[0] == proc:
                cpus = {"CPU": lease.want.get("CPU", 0)}
                lease.lent += 1 if waits else -1
                if lease.lent == (1 if waits else 0):
                    take(cpus, self._pot(lease), 1 if waits else -1)
        if waits:
            self._place()

    def _pot(self, lease):
        if lease.bundle is None:
            return lease.node.free
        group = self.groups.get(lease.bundle[0])
        return group.free[lease.bundle[1]] if group is not None and group.free else {}

    def _request(self, request):
        self.requests.append(request)
        self._place()

    def _place(self):
        """Gives free resources to requests, in the order of the requests."""
        if self.placing:  # a placed request has freed something
            self.again = True
            return
        self.placing = self.again = True
        try:
            while self.again:
                self.again = False
                self._place_all()
        finally:
            self.placing = False
        self._look_later()

    def _look_later(self):
        if not self.looking and (self.requests or any(g.state in ("PENDING", "RESCHEDULING") for g in self.groups.values())):
            self.looking = True
            self.loop.later(_SILENT, self._look)

    def _look(self):
        """Tells each driver once which of its requests wait although no node has the resources, or
        because actors hold them.
        """
        self.looking = False
        late = time.monotonic() - _SILENT
        alive = [n for n in self.nodes.values() if n.alive]
        tasks = [x for x in self.leases.values() if x.link is not None]
        for group in self.groups.values():
            if group.state in ("PENDING", "RESCHEDULING") and group.since <= late:
                what = f"{group.strategy} placement group {group.name or group.id.hex()} of {group.bundles}"
                self._say_why(group.job, group.id, what, self._nodes_for(group, {n.id: dict(n.total) for n in alive}), not tasks)
        for request in self.requests:
            if request.since <= late:
                shape, group = (tuple(sorted(request.want.items())), repr(request.strategy)), None
                if request.strategy[0] == "group":
                    group = self.groups.get(request.strategy[1])
                    if group is None or group.state != "CREATED":
                        continue
                can = [n for n in alive if group or fits(request.want, n.total)]
                held = not any(x.node in can and (group is None or x.bundle and x.bundle[0] == group.id) for x in tasks)
                want = {name: float(amount) for name, amount in request.want.items()}
                self._say_why(request.job, shape, f"resource request {want} of {request.what}", can, held)
        self._look_later()

    def _say_why(self, job, key, what, can, held):
        """Says why a request waits, unless it waits for tasks to end."""
        key = job, key, bool(can)
        if key in self.told_why or can and not held:
            return
        if len(self.told_why) >= _KEPT:
            self.told_why.clear()
        self.told_why.add(key)
        if can:
            text = f"Warning: The {what} cannot be scheduled right now: actors and placement groups hold what it needs. Create fewer of them, or add nodes to this cluster."
        else:
            text = f"Error: No available node types can fulfill {what}. Add suitable nodes to this cluster to resolve this issue."
        text = f"\x1b[33m(scheduler)\x1b[0m {text}\n"
        driver = self.jobs.get(job)
        if driver is None or not driver["alive"]:
            sys.stderr.write(text)
        elif driver["log"]:
            driver["link"].send("log", "err", text)

    def _place_all(self):
        for group in self.groups.values():
            if group.state in ("PENDING", "RESCHEDULING"):
                self._place_group(group)
        tried, left = set(), []
        requests, self.requests = self.requests, []
        for request in requests:
            key = (tuple(sorted(request.want.items())), repr(request.strategy))
            if key in tried:
                left.append(request)
                continue
            try:
                lease = self._grant(request)
            except Exception as error:
                request.then(error=error)
                continue
            if lease is None:
                tried.add(key)
                left.append(request)
            else:
                request.then(lease)
        self.requests = left + self.requests

    def _grant(self, request):
        from .exceptions import TaskPlacementGroupRemoved, TaskUnschedulableError

        kind = request.strategy[0]
        if kind == "group":
            _, group_id, index = request.strategy[:3]
            group = self.groups.get(group_id)
            if group is None or group.state == "REMOVED":
                raise TaskPlacementGroupRemoved()
            if not any(fits(request.want, b) for i, b in enumerate(group.bundles) if index in (-1, i)):
                raise ValueError(f"{request.what} needs {request.want}, and no bundle of the placement group has it: {group.bundles}")
            for i in range(len(group.bundles)) if index == -1 else [index]:
                if group.nodes and group.nodes[i] is not None and fits(request.want, group.free[i]):
                    gpus = _gpus(request.want.get("GPU", 0), group.gpu_free[i])
                    if gpus is not None:
                        take(request.want, group.free[i])
                        return self._leased(request, group.nodes[i], gpus, (group_id, i))
            return None
        alive = [n for n in self.nodes.values() if n.alive]
        if kind == "node":
            _, node_id, soft = request.strategy[:3]
            named = [n for n in alive if n.id == node_id]
            if not named and not soft or named and not soft and not fits(request.want, named[0].total):
                raise TaskUnschedulableError(
                    f"The node specified via NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible, and soft=False was specified. "
                    f"{request.what} needs {request.want} on node {node_id}.")
            if named and (not soft or fits(request.want, named[0].total)):
                alive = named
        can = [n for n in alive if fits(request.want, n.free)]
        if kind == "spread" and can:
            self.turn += 1
            order = list(self.nodes.values())
            can.sort(key=lambda n: (order.index(n) - self.turn) % len(order))
        elif len(can) > 1:
            # as in Ray: the first node that is less than half used, or else the least used node
            can.sort(key=lambda n: 0 if n.use() < 0.5 else n.use())
            if not request.want.get("GPU"):
                can.sort(key=lambda n: n.total.get("GPU", 0) > 0)
        for node in can:
            pot = {i: f for i, f in enumerate(node.gpu_free)}
            gpus = _gpus(request.want.get("GPU", 0), pot)
            if gpus is not None:
                for i, part in gpus:
                    node.gpu_free[i] = round(node.gpu_free[i] - part, 4)
                take(request.want, node.free)
                return self._leased(request, node, gpus, None)
        return None

    def _leased(self, request, node, gpus, bundle):
        lease = Lease(next(self.numbers), node, request.want, [(node.gpus[i], part, i) for i, part in gpus], bundle, request.link, request.job)
        self.leases[lease.number] = lease
        return lease

    def _free(self, lease):
        if self.leases.pop(lease.number, None) is None:
            return
        pot = self._pot(lease)
        take(lease.want, pot, 1)
        if lease.lent > 0:
            take({"CPU": lease.want.get("CPU", 0)}, pot)
        self._free_gpus(lease)

    def _free_gpus(self, lease):
        group = self.groups.get(lease.bundle[0]) if lease.bundle is not None else None
        for _, part, i in lease.gpus:
            if lease.bundle is None:
                lease.node.gpu_free[i] = round(lease.node.gpu_free[i] + part, 4)
            elif group is not None and group.gpu_free:
                free = group.gpu_free[lease.bundle[1]]
                free[i] = round(free.get(i, 0) + part, 4)

    def _end_process(self, lease):
        if lease.process is not None and lease.node.alive:
            lease.node.link.do(None, "end", lease.process[0])

    def on_nodes(self, link, then):
        then([{
            "id": n.id, "address": n.address, "alive": n.alive, "hostname": n.facts["hostname"], "name": n.facts["name"], "why": n.why, "total": n.total, "labels": n.labels,
            "free": dict(n.free),
        } for n in self.nodes.values()])

    def on_kill_node(self, link, then, node_id):
        """For tests: the node's host dies."""
        node = self.nodes[node_id]
        node.link.do(None, "die")
        then()

    # Processes

    def _owner_gone(self, address):
        self._everywhere("owner_gone", base_of(address[0], address[1]))

    def told_ended(self, address, why):
        proc = address[0]
        self.ended[proc] = why
        _forget(self.ended, list(self.ended))
        for then in self.asked_of.pop(proc, ()):
            then(why)
        self._owner_gone(address)
        for lease in [x for x in self.leases.values() if x.process is not None and x.process[0] == proc]:
            self._free(lease)
        for actor in list(self.actors.values()):
            if actor.process is not None and actor.process[0] == proc:
                if actor.leaving or actor.why:
                    self._actor_over(actor, actor.why or "The actor is dead because all references to the actor were removed.")
                else:
                    self._actor_ended(actor, f"The actor's worker process has died: {why}")
        self._place()

    def on_ended(self, link, then, address, last=False):
        """Says why a process, to which another process has lost its connection, has ended; None if
        it lives.
        """
        proc, node = address[0], self.nodes.get(address[1])
        driver = next((j for j in self.jobs.values() if j["driver"][0] == proc), None)
        if proc in self.ended:
            then(self.ended[proc])
        elif node is None or not node.alive:
            then(f"its node was lost: {node.why}" if node is not None else "its node was lost")
        elif driver is not None and not driver["alive"]:
            then("the driver has ended")
        elif not last:  # the report of its end may be on the way
            if proc not in self.asked_of:
                self.loop.later(_REPORT, lambda: [self.on_ended(link, waits, address, True) for waits in self.asked_of.pop(proc, ())])
            self.asked_of.setdefault(proc, []).append(then)
        elif driver is not None:
            then(None)
        else:
            node.link.do(lambda lives=None, error=None, _=(): then(None if lives else "it has ended"), "lives", proc)

    # Actors

    def on_actor(self, link, then, actor_id, spec, creator, body):
        """Registers an actor, whose body comes now or later."""
        from .exceptions import ActorAlreadyExistsError

        if spec["name"]:
            key = spec["namespace"], spec["name"]
            if key in self.names:
                then(error=ActorAlreadyExistsError(
                    f"The name {spec['name']} (namespace={spec['namespace']}) is already taken. Please use a different name or get the existing actor using "
                    f"ray.get_actor('{spec['name']}', namespace='{spec['namespace']}')"))
                return
            self.names[key] = actor_id
        actor = self.actors[actor_id] = Actor(actor_id, spec, link, creator)
        actor.holders[link] = 1
        then()
        if body is not None:
            self.said_actor_body(link, actor_id, body)

    def said_actor_body(self, link, actor_id, body):
        actor = self.actors.get(actor_id)
        if actor is None or actor.state == "DEAD":
            return
        actor.body = body
        self._start(actor)

    def said_actor_failed(self, link, actor_id, error):
        """The arguments of an actor are an error."""
        actor = self.actors.get(actor_id)
        if actor is None or actor.state == "DEAD":
            return
        actor.error = error
        self._actor_over(actor, "its arguments could not be had")

    def _start(self, actor):
        actor.state = "PENDING_CREATION"
        spec = actor.spec

        def granted(lease=None, error=None):
            from .exceptions import ActorUnschedulableError, RayError, TaskUnschedulableError

            actor.request = None
            if error is not None:
                kind = ActorUnschedulableError if isinstance(error, TaskUnschedulableError) else type(error)
                actor.error = kind(*error.args)
                self._actor_over(actor, str(error))
                return
            if actor.state == "DEAD":
                self._free(lease)
                return
            actor.lease = lease
            lease.link = None

            def got(address=None, error=None, _=()):
                if isinstance(error, ConnectionError) and actor.state != "DEAD":  # the node is lost
                    actor.lease = None
                    self.loop.soon(lambda: actor.state == "DEAD" or self._start(actor))
                    return
                if error is not None or actor.state == "DEAD":
                    self._free(lease)
                    if address is not None:
                        lease.node.link.do(None, "end", address[0])
                    elif actor.state != "DEAD":
                        actor.error = error if isinstance(error, RayError) else None
                        self._actor_over(actor, str(error))
                    return
                lease.process = actor.process = address
                actor.began, actor.ended = time.time(), None
                lease.node.link.do(None, "send", address[0], ("create", actor.id, spec, actor.body, lease.gpus, actor.restarts))

            lease.node.link.do(got, "worker", self._job(actor.job), spec["env"])

        actor.request = Request(None, actor.id, spec["placed"], spec["strategy"], actor.job, granted, f"actor {spec['class']}")
        self._request(actor.request)

    def told_created(self, actor_id, error, pid):
        actor = self.actors.get(actor_id)
        if actor is None or actor.state == "DEAD":
            return
        actor.pid, actor.ended = pid, time.time()
        if error is not None:
            actor.error = error
            actor.leaving = True
            self._actor_over(actor, "")
            return
        actor.state = "ALIVE"
        lease, runs = actor.lease, actor.spec["runs"]
        if lease is not None and runs != lease.want:  # an actor without num_cpus needs a CPU only to start
            take(lease.want, self._pot(lease), 1)
            take(runs, self._pot(lease))
            lease.want = runs
            self._place()
        waiting, actor.waiting = actor.waiting, []
        for then in waiting:
            self._say_where(actor, then)

    def _say_where(self, actor, then):
        if actor.state == "DEAD":
            then(("dead", actor.why, actor.error, actor.restarts))
        else:
            then(("alive", actor.process, actor.restarts))

    def on_where(self, link, then, actor_id, after):
        """Where an actor is, once it runs. after is the number of the actor's starts when its
        process was seen to end, or -1.
        """
        actor = self.actors.get(actor_id)
        if actor is None:
            then(("dead", "The actor has died, and so have many others since then, or it is not of this session.", None, 0))
        elif actor.state == "DEAD" or actor.state == "ALIVE" and actor.restarts > after:
            self._say_where(actor, then)
        else:
            actor.waiting.append(then)
            if actor.state == "ALIVE":  # a caller has lost its connection, since the process or the network has failed
                self.loop.later(_REPORT, lambda: self._say_whether(actor, then, after))

    def _say_whether(self, actor, then, after):
        """Tells a caller that waits for the report of a process's end that the process lives."""
        def told(lives=None, error=None, _=()):
            if lives and then in actor.waiting and actor.state == "ALIVE" and actor.restarts == after:
                actor.waiting.remove(then)
                self._say_where(actor, then)

        if then in actor.waiting and actor.state == "ALIVE" and actor.restarts == after and actor.lease is not None:
            actor.lease.node.link.do(told, "lives", actor.process[0])

    def told_exiting(self, actor_id, why):
        actor = self.actors.get(actor_id)
        if actor is not None:
            actor.why, actor.leaving = why, True

    def _actor_ended(self, actor, why):
        """An actor's process has died. The actor starts again, or it is dead."""
        if actor.lease is not None:
            self._free(actor.lease)
        actor.process = actor.lease = None
        if actor.state == "DEAD":
            return
        most = actor.spec["max_restarts"]
        if most == -1 or actor.restarts < most:
            actor.restarts += 1
            self._start(actor)
            actor.state = "RESTARTING" if actor.state != "ALIVE" else actor.state
        else:
            self._actor_over(actor, why)

    def _actor_over(self, actor, why):
        if actor.state == "DEAD":
            return
        actor.state, actor.why = "DEAD", why
        if actor.name and self.names.get((actor.namespace, actor.name)) == actor.id:
            del self.names[actor.namespace, actor.name]
        if actor.request in self.requests:
            self.requests.remove(actor.request)
        if actor.lease is not None:
            self._end_process(actor.lease)
            self._free(actor.lease)
        waiting, actor.waiting = actor.waiting, []
        for then in waiting:
            self._say_where(actor, then)
        actor.body, actor.spec = None, {"class": actor.spec["class"], "handle": actor.spec["handle"]}
        self.actors.move_to_end(actor.id)
        _forget(self.actors, [a.id for a in self.actors.values() if a.state == "DEAD"])
        if actor.detached:
            self._unused(_UNUSED)
        self._place()

    def on_hold(self, link, then, actor_id):
        actor = self.actors.get(actor_id)
        if actor is not None:
            actor.holders[link] = actor.holders.get(link, 0) + 1
        then(actor is not None)

    def said_unhold(self, link, actor_id):
        actor = self.actors.get(actor_id)
        if actor is not None and link in actor.holders:
            actor.holders[link] -= 1
            if not actor.holders[link]:
                del actor.holders[link]
                self._unheld(actor)

    def _unheld(self, actor):
        """The last handle of an actor is gone, so the actor ends after its calls."""
        if actor.holders or actor.detached or actor.state == "DEAD":
            return
        if actor.state == "ALIVE" and actor.lease is not None:
            actor.leaving = True
            actor.lease.node.link.do(None, "send", actor.process[0], ("leave",))
        elif actor.state == "DEPENDENCIES_UNREADY" or actor.request is not None:
            self._actor_over(actor, "The actor is dead because all references to the actor were removed.")
        else:
            actor.waiting.append(lambda *_: self._unheld(actor))

    def on_kill(self, link, then, actor_id, no_restart):
        actor = self.actors.get(actor_id)
        if actor is not None and actor.state != "DEAD":
            if no_restart:
                self._actor_over(actor, "The actor is dead because it was killed by `ray.kill`.")
            elif actor.lease is not None:
                self._end_process(actor.lease)
        then()

    def on_named(self, link, then, name, namespace):
        actor_id = self.names.get((namespace, name))
        if actor_id is None:
            then(None)
            return
        actor = self.actors[actor_id]
        actor.holders[link] = actor.holders.get(link, 0) + 1
        then((actor_id, actor.spec["handle"]))

    def on_names(self, link, then, namespace):
        then([{"name": name, "namespace": space} for space, name in self.names if namespace in (None, space)])

    def on_actors(self, link, then):
        then([{
            "actor_id": a.id, "name": a.name or "", "namespace": a.namespace, "class_name": a.spec["class"], "state": a.state, "job_id": a.job,
            "node_id": a.process[1] if a.process else None, "restarts": a.restarts, "why": a.why, "pid": a.pid, "detached": a.detached, "want": a.spec.get("runs"),
        } for a in self.actors.values()])

    # Tasks

    def said_over(self, link, job, rows):
        self.history.told(job, rows)

    def on_tasks(self, link, then):
        """All tasks: the finished ones, and the others that processes report."""
        def asked(answers):
            rows, pids = self.history.with_known(answers)
            then((rows + [(a.job, _history.of_actor(a)) for a in self.actors.values()], pids))

        _history.gathered(self.loop, [n.link.do for n in self.nodes.values() if n.alive], "tasks", asked)

    # Placement groups

    def on_group(self, link, then, group_id, bundles, strategy, name, detached, job):
        self.groups[group_id] = Group(group_id, bundles, strategy, name, detached, job, link)
        self._place()
        then()

    def on_group_ready(self, link, then, group_id):
        group = self.groups.get(group_id)
        if group is None or group.state == "REMOVED":
            then("REMOVED")
        elif group.state == "CREATED":
            then("CREATED")
        else:
            group.waiting.append(then)

    def on_group_named(self, link, then, name):
        group = next((g for g in self.groups.values() if g.name == name and g.state != "REMOVED"), None)
        then(None if group is None else (group.id, group.bundles))

    def on_groups(self, link, then):
        then([{"id": g.id, "name": g.name, "state": g.state, "strategy": g.strategy, "bundles": g.bundles, "nodes": [n.id if n else "" for n in g.nodes], "job": g.job,
               "detached": g.detached} for g in self.groups.values()])

    def on_group_remove(self, link, then, group_id):
        group = self.groups.get(group_id)
        if group is not None:
            self._remove(group)
        then()
        self._place()

    def _remove(self, group):
        if group.state == "REMOVED":
            return
        for lease in [x for x in self.leases.values() if x.bundle is not None and x.bundle[0] == group.id]:
            for actor in list(self.actors.values()):
                if actor.lease is lease:
                    self._actor_over(actor, "The actor is dead because its placement group was removed.")
            self._end_process(lease)
            self._free(lease)
        group.state = "REMOVED"
        for node, bundle, gpus in zip(group.nodes, group.bundles, group.gpu_free):
            if node is not None:
                take(bundle, node.free, 1)
                for i, part in gpus.items():
                    node.gpu_free[i] = round(node.gpu_free[i] + part, 4)
        group.nodes, group.free, group.gpu_free = [], [], []
        waiting, group.waiting = group.waiting, []
        for then in waiting:
            then("REMOVED")
        self.groups.move_to_end(group.id)
        _forget(self.groups, [g.id for g in self.groups.values() if g.state == "REMOVED"])
        if group.detached:
            self._unused(_UNUSED)

    def _place_group(self, group):
        nodes = self._nodes_for(group)
        if nodes is None:
            return
        had = group.nodes or [None] * len(nodes)
        group.free, group.gpu_free = group.free or [{} for _ in nodes], group.gpu_free or [{} for _ in nodes]
        for i, (node, bundle) in enumerate(zip(nodes, group.bundles)):
            if had[i] is not None:
                continue
            take(bundle, node.free)
            gpus = _gpus(bundle.get("GPU", 0), {i: f for i, f in enumerate(node.gpu_free)}) or []
            for gpu, part in gpus:
                node.gpu_free[gpu] = round(node.gpu_free[gpu] - part, 4)
            group.free[i], group.gpu_free[i] = dict(bundle), dict(gpus)
        group.nodes, group.state = nodes, "CREATED"
        waiting, group.waiting = group.waiting, []
        for then in waiting:
            then("CREATED")

    def _nodes_for(self, group, free=None):
        """A node for each bundle, or None. A bundle that has a node keeps it."""
        alive = [n for n in self.nodes.values() if n.alive]
        free = free or {n.id: dict(n.free) for n in alive}
        if group.strategy == "STRICT_PACK":
            for node in alive:
                pot = free[node.id]
                if all(fits(b, pot) and take(b, pot) is None for b in group.bundles):
                    return [node] * len(group.bundles)
            return None
        placed = list(group.nodes) or [None] * len(group.bundles)
        used = {n.id for n in placed if n is not None}
        for i in sorted((i for i, n in enumerate(placed) if n is None), key=lambda i: -group.bundles[i].get("GPU", 0)):
            bundle = group.bundles[i]
            can = [n for n in alive if fits(bundle, free[n.id])]
            if group.strategy == "STRICT_SPREAD":
                can = [n for n in can if n.id not in used]
            if not can:
                return None
            if group.strategy == "PACK":
                can.sort(key=lambda n: n.id not in used)
            elif group.strategy == "SPREAD":
                can.sort(key=lambda n: n.id in used)
            placed[i] = can[0]
            used.add(can[0].id)
            take(bundle, free[can[0].id])
        return placed


def _forget(kept, over):
    """Drops the oldest finished entries beyond a number."""
    for key in over[:max(0, len(over) - _KEPT)]:
        del kept[key]


class _Far:
    """The host of another node."""

    def __init__(self, link):
        self.connection = link

    def do(self, then, op, *args):
        if then is None:
            self.connection.send(op, *args)
        else:
            self.connection.ask(lambda value, error, _: then(value, error), op, *args)


def _gpus(want, free):
    """The GPUs for a request, and the part of each GPU, as [(position, part)]; None if there are
    too few.
    """
    if not want:
        return []
    if want < 1:
        can = [(part, i) for i, part in sorted(free.items()) if part + _EPSILON >= want]
        return [(min(can)[1], want)] if can else None
    whole = [i for i, part in sorted(free.items()) if part >= 1 - _EPSILON]
    return [(i, 1.0) for i in whole[:int(want)]] if len(whole) >= int(want) else None

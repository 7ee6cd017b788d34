"""Ray's names: the programs of ray_programs print what Ray 2.60 prints, as recorded by record_ray.py; and failures."""

import contextlib
import glob
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

from ray import _cluster, _head, _package, _unserved
from record_ray import HERE, said

LIMIT = 300  # seconds that nothing here takes, unless it hangs: busy machines are slow
PROGRAM_LIMIT = 600  # the same for programs whose workers import torch, which takes a minute on a busy machine with cold files


def run(program, args=(), **options):
    return subprocess.Popen([sys.executable, "-c", program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def processes(word):
    """The processes that have a word in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError):
            with open(path, "rb") as f:
                if word.encode() in f.read():
                    found.append(int(path.split("/")[2]))
    return found


class Programs(unittest.TestCase):
    def program(self, name, **env):
        p = subprocess.Popen([sys.executable, "-X", "faulthandler", os.path.join(HERE, name + ".py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env={**os.environ, **env})
        try:
            out, err = p.communicate(timeout=PROGRAM_LIMIT)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGABRT)  # faulthandler then prints what each thread waits for
            out, err = p.communicate()
            self.fail(f"{name}.py has not ended after {PROGRAM_LIMIT} s; it printed:\n{out}\n{err}")
        self.assertEqual(p.returncode, 0, err)
        with open(os.path.join(HERE, name + ".out")) as f:
            self.assertEqual(said(out), f.read(), err)

    def test_tasks(self):
        self.program("tasks")

    def test_actors(self):
        self.program("actors")

    def test_places(self):
        self.program("places")

    def test_pools(self):
        self.program("pools")

    def test_processes(self):
        self.program("processes")

    def test_state(self):
        self.program("state")

    def test_nodes(self):
        self.program("nodes")

    def test_bad(self):
        self.program("bad")

    def test_dirs(self):
        self.program("dirs")
        _cluster.directory()  # which is this user's alone

    def test_directories_that_cannot_travel(self):
        """They are refused in one line, before a cluster starts."""
        program = "import ray, sys\ntry:\n    ray.init(runtime_env={'working_dir': sys.argv[1]})\nexcept Exception as e:\n    print(type(e).__name__, e, ray.is_initialized())"
        for make, want in ((lambda d: os.mkfifo(os.path.join(d, "p")), '"p" cannot travel: it is a FIFO; remove it, or list it in .rayignore'),
                           (lambda d: os.symlink("/etc", os.path.join(d, "l")), '"l" cannot travel: it is a link to /etc, outside the workspace'),
                           (lambda d: (open(os.path.join(d, "f"), "w").close(), os.truncate(os.path.join(d, "f"), 10 ** 10)), "it has more than 512 MiB, the limit")):
            with tempfile.TemporaryDirectory() as top:
                make(top)
                out = subprocess.run([sys.executable, "-c", program, top], capture_output=True, text=True, timeout=LIMIT)
                self.assertRegex(out.stdout, rf"^ValueError runtime_env\['working_dir'\]: workspace {top}: .* False\n$", out.stderr)
                self.assertIn(want, out.stdout)

    def test_copies_of_directories(self):
        """What is left of a session is removed, unless a process has it: that may be one in a container with the same directory."""
        with tempfile.TemporaryDirectory() as kept:
            path = os.path.join(kept, "golaunch-session-0-other.1")
            os.mkdir(path)
            lock = _package._use(path)
            _package._remove_unused(kept, os.path.basename(path))
            self.assertTrue(os.path.isdir(path))
            os.close(lock)
            _package._remove_unused(kept, os.path.basename(path))
            self.assertIsNone(_package._use(path))

    def test_packages_without_uv(self):
        program = "import ray\ntry:\n    ray.init(runtime_env={'pip': ['x']})\nexcept RuntimeError as e:\n    print(e)"
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, env={**os.environ, "PATH": ""})
        self.assertIn("needs uv on each node, and it is not here: pip install uv, or name a Python", out.stdout, out.stderr)

    def test_loops(self):
        self.program("loops")

    def test_train(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("there is no torch")
        self.program("train")

    def test_collective(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("there is no torch")
        self.program("collective", RAY_preload_python_modules="torch.distributed")

    def test_arrays(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("there is no NumPy")
        self.program("arrays")


class Failures(unittest.TestCase):
    def run_program(self, program, **options):
        process = run(program, **options)

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def finish(self, program, **options):
        process = self.run_program(program, **options)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0, err)
        return out

    def test_a_killed_driver_leaves_nothing(self):
        word = f"RAY_TEST_WORD={os.getpid()}-killed"
        process = self.run_program(
            "import os, ray, sys, time\nray.init(num_cpus=2, runtime_env={'working_dir': sys.argv[1]})\n"
            "@ray.remote\nclass A:\n    def hello(self): return os.getcwd()\n"
            "a = A.options(lifetime='detached', name='a').remote()\nhere = ray.get(a.hello.remote())\n"
            "keep = ray.put(b'x' * 1000000)\nprint(here, flush=True)\ntime.sleep(1000)\n",
            args=[HERE], env={**os.environ, "RAY_TEST_WORD": word.partition("=")[2]})
        here = process.stdout.readline().strip()
        self.assertTrue(os.path.exists(os.path.join(here, "dirs.py")), here)
        self.killed(process, word)
        end = time.monotonic() + LIMIT
        while os.path.exists(here):
            self.assertLess(time.monotonic(), end, f"{here} is left")
            time.sleep(0.05)

    def killed(self, process, word):
        self.assertGreater(len(processes(word)), 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(LIMIT)
        end = time.monotonic() + LIMIT
        while processes(word):
            self.assertLess(time.monotonic(), end, f"these are left: {processes(word)}")
            time.sleep(0.05)

    def test_what_a_driver_says_without_its_host(self):
        out = self.finish(
            "import os, ray, signal, time\nray.init(num_cpus=1)\n"
            "@ray.remote\ndef host(): return os.getppid()\n"
            "@ray.remote\ndef stay(): time.sleep(1000)\n"
            "pid, stays = ray.get(host.remote()), stay.remote()\nos.kill(pid, signal.SIGKILL)\n"
            "try: ray.get(stays)\n"
            "except ray.exceptions.RaySystemError as e: print(e)\n")
        self.assertIn(" has ended: golaunch status", out)

    def test_a_killed_trainer_leaves_nothing(self):
        word = f"RAY_TEST_WORD={os.getpid()}-trainer"
        process = self.run_program(
            "import os\nfrom golaunch.binary import find_binary\nfrom ray.train.data_parallel_trainer import _run\n"
            "_run([find_binary(), '--nodes', '1', '--procs-per-node', '1', '--', 'sh', '-c', 'echo up; sleep 1000'], os.environ)\n",
            env={**os.environ, "RAY_TEST_WORD": word.partition("=")[2]})
        self.assertIn("up", process.stdout.readline())
        self.killed(process, word)

    def test_variables_are_in_no_command_line(self):
        """Those that golaunch itself would read, and those that name others, are set on the node."""
        values = {"KEY": "secret", "HOME": "it's", "GOLAUNCH_X": "a\n$(false) `false` ${KEY}${NONE}$KEY-$NONE$1$", "PATH": "${PATH}:/x", "EMPTY_": "${NONE}"}
        flags, own, before = _cluster.variables(values)
        self.assertEqual(flags, ["--env", "KEY", "--env", _cluster._SETS])
        self.assertNotIn("it's", " ".join(before))
        said = subprocess.run([*before, sys.executable, "-c", f"import os; print([os.environ[k] for k in {list(values)}], {_cluster._SETS!r} in os.environ)"],
                              env={"PATH": os.environ["PATH"], **own}, capture_output=True, text=True)
        want = ["secret", "it's", "a\n$(false) `false` secretsecret-$NONE$1$", os.environ["PATH"] + ":/x", ""]
        self.assertEqual(said.stdout, f"{want} False\n", said.stderr)
        self.assertRaisesRegex(ValueError, "no name of a variable", _cluster.variables, {"LD_x; false": ""})

    def test_two_drivers(self):
        """The second uses the first one's cluster: its own actors end with it, and detached ones do not."""
        second = (
            "import ray\nray.init(address='auto', namespace='n')\n"
            "@ray.remote\nclass B:\n    def hello(self): return 'b'\n"
            "print(ray.get(ray.get_actor('a').hello.remote()), ray.util.list_named_actors())\n"
            "b = B.options(name='b').remote(); d = B.options(name='d', lifetime='detached').remote()\n"
            "print(ray.get([b.hello.remote(), d.hello.remote()]), ray.get_runtime_context().get_job_id())\n")
        out = self.finish(
            "import ray, subprocess, sys, time\nray.init(num_cpus=4, namespace='n')\n"
            "@ray.remote\nclass A:\n    def hello(self): return 'a'\n"
            "a = A.options(name='a').remote()\nray.get(a.hello.remote())\n"
            f"print(subprocess.run([sys.executable, '-c', {second!r}], capture_output=True, text=True, check=True).stdout, end='')\n"
            "end = time.monotonic() + 300\n"
            "while 'b' in ray.util.list_named_actors() and time.monotonic() < end: time.sleep(0.05)\n"
            "print(sorted(ray.util.list_named_actors()), ray.get(ray.get_actor('d').hello.remote()))\n")
        self.assertEqual(out, "a ['a']\n['b', 'b'] 02000000\n['a', 'd'] b\n")

    def test_a_connection_between_nodes_breaks(self):
        """While both ends live: calls and references go on over another one, or say what is unknown. Strangers who connect get nothing, and are few."""
        out = self.finish(
            "import os, ray, socket, time\nfrom ray import _wire\nfrom ray.cluster_utils import Cluster\n"
            "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 2})\n"
            "node = cluster.add_node(num_cpus=4, resources={'right': 4})\n"
            "ray.init(address=cluster.address, log_to_driver=False)\n"
            "right = next(n for n in ray.nodes() if 'right' in n['Resources'])\n"
            "def stranger(*words):\n"
            "    sock = socket.create_connection((right['NodeManagerAddress'], right['NodeManagerPort']))\n    sock.settimeout(300)\n"
            "    for word in words: sock.sendall(word)\n    return sock\n"
            "def end(sock):\n"
            "    try:\n        while sock.recv(4096): pass\n    except ConnectionResetError: pass\n"
            "silent, began = stranger(), time.monotonic()\n"
            "handshake = stranger(right['RayletSocketName'].encode().ljust(64), b'\\x16')\n"
            "for s in (stranger(b'nobody'.ljust(64)), stranger(right['RayletSocketName'].encode().ljust(64), b'GET / HTTP/1.1\\r\\n\\r\\n')): end(s)\n"
            "core = ray._session.core()\n"
            "def cut():\n"
            "    for link in list(core.links.values()):\n"
            "        if link.far:\n"
            "            with socket.socket(fileno=os.dup(link.sock.fileno())) as s: s.shutdown(socket.SHUT_RDWR)\n"
            "@ray.remote(resources={'right': 1})\nclass A:\n"
            "    def __init__(self):\n        import asyncio\n        self.n, self.began, self.go = 0, asyncio.Event(), asyncio.Event()\n"
            "    async def add(self): self.n += 1; return self.n\n"
            "    async def put(self): return [ray.put('value')]\n"
            "    async def wait(self): self.began.set(); await self.go.wait()\n"
            "    async def waits(self): await self.began.wait()\n"
            "a = A.options(max_task_retries=1).remote(); b = A.remote()\n"
            "print(ray.get([a.add.remote(), b.add.remote()]))\n"
            "put, = ray.get(a.put.remote())\nwait = b.wait.remote(); ray.get(b.waits.remote())\ncut()\n"
            "print(ray.get(a.add.remote()), ray.get(put))\n"
            "try: ray.get(wait)\nexcept ray.exceptions.ActorUnavailableError as e: print('although that lives' in str(e))\n"
            "print(ray.get(b.add.remote()))\n"
            "end(silent); end(handshake)\nprint(time.monotonic() - began > _wire.CONNECT - 1)\n"
            "many = [stranger() for _ in range(_wire.STRANGERS + 10)]\nend(many[-1])\n"
            "for s in many: s.close()\n"
            "print(ray.get(A.remote().add.remote()))\n")
        self.assertEqual(out, "[1, 1]\n2 value\nTrue\n2\nTrue\n1\n")

    def test_references_of_a_cluster_that_is_gone(self):
        out = self.finish(
            "import pickle, ray\nray.init(num_cpus=1, log_to_driver=False)\n"
            "@ray.remote\ndef f(x): return x\n"
            "@ray.remote\nclass A:\n    def hello(self): return 1\n"
            "ref, a = ray.put(1), A.remote()\nray.get(a.hello.remote())\ntext, handle = pickle.dumps(ref), pickle.dumps(a)\n"
            "def fails(do):\n"
            "    try: do()\n    except Exception as e: return type(e).__name__, 'shut' in str(e)\n"
            "ray.shutdown()\n"
            "tried = (lambda: ray.get(ref), lambda: ray.wait([ref]), lambda: a.hello.remote(), lambda: ray.kill(a), lambda: pickle.dumps(ref))\n"
            "print({fails(do) for do in tried})\n"
            "ray.init(num_cpus=1, log_to_driver=False)\n"
            "print({fails(do) for do in (*tried, lambda: f.remote(ref), lambda: f.remote([ref]), lambda: ray.put([ref]))})\n"
            "print({fails(lambda: pickle.loads(t)) for t in (text, handle)}, ray.get(f.remote(2)))\n")
        self.assertEqual(out, "{('RaySystemError', True)}\n{('RaySystemError', True)}\n{('ValueError', True)} 2\n")

    def test_a_task_that_comes_before_its_working_directory(self):
        """It runs where it has come to: a process that waits for the directory has not got a task that waits."""
        with tempfile.TemporaryDirectory() as top:
            out = self.finish(
                "import ray, sys\nfrom ray import _core\n"
                "value = _core.Core.on_value\n"
                "_core.Core.on_value = lambda core, link, then, oid: core.loop.later(0.2, lambda: value(core, link, then, oid))\n"
                "ray.init(num_cpus=2, resources={'a': 2}, runtime_env={'working_dir': sys.argv[1]})\n"
                "@ray.remote(resources={'a': 1})\ndef f(): return 1\nprint(ray.get(f.remote(), timeout=300))\n", args=[top])
        self.assertEqual(out, "1\n")

    def test_late_messages(self):
        for seed in range(1, 31 if os.environ.get("GOLAUNCH_TEST_ALL") else 2):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as top:
                here = os.path.dirname(os.path.abspath(__file__))
                process = subprocess.Popen(
                    [sys.executable, os.path.join(here, "late.py"), str(seed), top], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={
                        **os.environ, "RAY_TEST_SEED": str(seed), "RAY_preload_python_modules": "delays", "PYTHONPATH": os.pathsep.join([here, os.path.dirname(here)])})
                self.addCleanup(process.kill)
                out, err = process.communicate(timeout=LIMIT)
                self.assertEqual(out, "all is given back\n", err)

    def test_what_waits_says_so(self):
        """Once, as Ray does, for what no node has, and for what actors hold."""
        process = self.run_program(
            "import ray\nfrom ray.util.placement_group import placement_group\nray.init(num_cpus=2)\n"
            "@ray.remote(num_cpus=2)\nclass A:\n    def f(self): return 1\n"
            "a = A.remote()\nray.get(a.f.remote())\n"
            "@ray.remote(resources={'b': 1})\ndef f(): return 1\n"
            "@ray.remote\ndef g(): return 1\n"
            "refs = [f.remote(), f.remote(), g.remote(), placement_group([{'CPU': 3}] * 2, 'STRICT_PACK', name='p').ready(), A.options(num_cpus=9, name='n').remote().f.remote()]\n"
            "print(len(ray.wait(refs, num_returns=5, timeout=12)[0]))\n")
        out, err = process.communicate(timeout=LIMIT)
        no = "Error: No available node types can fulfill "
        self.assertEqual(out, "0\n", err)
        self.assertEqual(sorted(line.partition("\x1b[0m ")[2].partition(". ")[0] for line in err.splitlines()), sorted([
            no + "STRICT_PACK placement group p of [{'CPU': 3.0}, {'CPU': 3.0}]", no + "resource request {'CPU': 1.0, 'b': 1.0} of f", no + "resource request {'CPU': 9.0} of actor A",
            "Warning: The resource request {'CPU': 1.0} of g cannot be scheduled right now: actors and placement groups hold what it needs"]))

    def test_an_environment_that_cannot_be_had(self):
        """Its tasks and actors say why, where Ray tries again without end."""
        out = self.finish(
            "import ray\nray.init(num_cpus=2)\n"
            "env = {'py_executable': '/nowhere/python'}\n"
            "@ray.remote(runtime_env=env)\ndef f(): return 1\n"
            "@ray.remote(runtime_env={'py_executable': 'false'})\ndef g(): return 1\n"
            "@ray.remote(runtime_env=env)\nclass A:\n    def f(self): return 1\n"
            "for ref in (f.remote(), g.remote(), A.remote().f.remote()):\n"
            "    try:\n        ray.get(ref, timeout=300)\n    except ray.exceptions.RuntimeEnvSetupError as e:\n        print(e)\n"
            "print(ray.available_resources()['CPU'])\n")
        said = r"Failed to set up runtime environment\.\non node .* \(127.0.0.1\): \[Errno 2\] No such file or directory\n"
        self.assertRegex(out, f"^{said}Failed to set up runtime environment\\.\nits process on node .* has ended with exit code 1: .*\n{said}2.0\n$")

    def test_a_driver_that_ends_before_all_nodes_have_joined(self):
        """It does not hold the session."""
        host = types.SimpleNamespace(config={"hosts": 2, "job": None}, loop=None)
        head, driver = _head.Head(host), types.SimpleNamespace(closed=False, peer=None)
        head.joined({"id": "a", "address": ("a-h0", "a", "", 0), "resources": {}}, host)
        head.on_driver(driver, self.fail, ("d", "a", "", 0), "n", {})
        driver.closed = True
        head.left(driver)
        head.joined({"id": "b", "address": ("b-h1", "b", "", 0), "resources": {}}, host)
        self.assertEqual(dict(head.jobs), {})

    def test_tasks_that_are_over_are_bounded(self):
        """The head forgets the oldest, whoever called them."""
        out = self.finish(
            "import ray\nfrom ray.util.state import list_tasks\nray.init(num_cpus=2)\n"
            "@ray.remote\ndef f(i): return i\n"
            "@ray.remote\ndef calls(): return ray.get([f.remote(i) for i in range(30)])\n"
            "ray.get(calls.remote()); ray.get([f.remote(i) for i in range(100)])\n"
            "tasks = list_tasks(limit=1000)\nprint(len(tasks), {t.state for t in tasks}, len(ray.timeline()))\n",
            env={**os.environ, "RAY_task_events_max_num_task_in_gcs": "20"})
        self.assertEqual(out, "20 {'FINISHED'} 20\n")

    def test_the_head_forgets(self):
        out = self.finish(
            "import ray\nfrom ray import _head\nray.init(num_cpus=1)\n"
            "from ray.util import placement_group, placement_group_table, remove_placement_group\n"
            "for _ in range(_head._KEPT + 50): remove_placement_group(placement_group([{'CPU': 1}]))\n"
            "print(len(placement_group_table()) == _head._KEPT)\n")
        self.assertEqual(out, "True\n")

    def test_a_lost_node(self):
        """Its actors die, tasks run elsewhere, and objects that a task made there are made again; those that were put are lost."""
        out = self.finish(
            "import ray\nfrom ray.cluster_utils import Cluster\n"
            "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 2, 'object_store_memory': 10_000_000, 'resources': {'left': 1}})\n"
            "node = cluster.add_node(num_cpus=4, resources={'right': 4})\n"
            "ray.init(address=cluster.address, log_to_driver=False)\n"
            "from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At\n"
            "right = next(n['NodeID'] for n in ray.nodes() if 'right' in n['Resources'])\n"
            "@ray.remote(resources={'left': 1})\ndef at_left(): return b'l' * 8_000_000\n"
            "@ray.remote\nclass A:\n"
            "    def put(self): return [ray.put(b'p' * 500000)]\n"
            "    def owns(self): self.owned = at_left.remote(); ray.wait([self.owned])\n"
            "@ray.remote(scheduling_strategy=At(right, soft=True))\ndef make(*x): return b'm' * 400000\n"
            "a = A.options(resources={'right': 1}).remote()\nput, = ray.get(a.put.remote())\nray.get(a.owns.remote())\n"
            "made = make.remote(make.remote(make.remote()))\nray.wait([made])\n"  # what it was made of is gone
            "cluster.remove_node(node)\n"
            "try: ray.get(a.put.remote())\nexcept ray.exceptions.RayActorError as e: print(type(e).__name__)\n"
            "print(len(ray.get(made)))\n"
            "try: ray.get(put)\nexcept ray.exceptions.ObjectLostError as e: print(isinstance(e, ray.exceptions.OwnerDiedError), right in str(e), 'was lost' in str(e))\n"
            "import time\nend = time.monotonic() + 300\n"
            "while True:\n"
            "    try: print(len(ray.get(ray.put(b'x' * 8_000_000)))); break\n"  # what its processes owned elsewhere is freed
            "    except ray.exceptions.ObjectStoreFullError: assert time.monotonic() < end; time.sleep(0.05)\n"
            "print([n['Alive'] for n in ray.nodes()].count(True), ray.cluster_resources().get('right'))\n",
            env={**os.environ, "RAY_automatic_object_spilling_enabled": "0"})
        self.assertEqual(out, "ActorDiedError\n400000\nTrue True True\n8000000\n1 None\n")

    def test_objects_are_bounded_and_freed(self):
        out = self.finish(
            "import ray, time\nray.init(num_cpus=1, object_store_memory=10_000_000)\n"
            "keep = [ray.put(b'x' * 1_000_000) for _ in range(9)]\n"
            "try: ray.put(b'x' * 2_000_000)\nexcept ray.exceptions.ObjectStoreFullError as e: print('bytes are in use' in str(e))\n"
            "@ray.remote\ndef big(): return b'x' * 3_000_000\n"
            "try: ray.get(big.remote())\nexcept ray.exceptions.ObjectStoreFullError as e: print('of node' in str(e))\n"
            "del keep\nend = time.monotonic() + 300\n"
            "while True:\n"
            "    try: print(len(ray.get(ray.put(b'x' * 8_000_000)))); break\n"
            "    except ray.exceptions.ObjectStoreFullError: assert time.monotonic() < end; time.sleep(0.05)\n"
            "@ray.remote\ndef step(state): return bytes(reversed(state))\n"
            "state = ray.put(b'x' * 1_000_000)\n"
            "for _ in range(40): state = step.remote(state); ray.wait([state])\n"  # what made it keeps no values
            "print(len(ray.get(state)))\n", env={**os.environ, "RAY_automatic_object_spilling_enabled": "0"})
        self.assertEqual(out, "True\nTrue\n8000000\n1000000\n")

    def test_objects_spill(self):
        """What memory has no room for is in files without names, which are gone with the objects."""
        from ray._host import _in_memory

        with tempfile.TemporaryDirectory(dir=next(d for d in (tempfile.gettempdir(), "/var/tmp", os.getcwd()) if not _in_memory(os.path.realpath(d)))) as where:
            out = self.finish(
                f"import glob, os, ray, time\nwhere = {where!r}\nray.init(num_cpus=1, object_store_memory=10_000_000, object_spilling_directory=where)\n"
                "def files():\n"
                "    found = 0\n"
                "    for fd in glob.glob('/proc/[0-9]*/fd/*'):\n"
                "        try: found += os.readlink(fd).startswith(where)\n"
                "        except OSError: pass\n"
                "    return found\n"
                "refs = [ray.put(bytes([i]) * 2_000_000) for i in range(12)]\n"
                "print([ray.get(r)[0] for r in refs], os.listdir(where), files() >= 6)\n"
                "@ray.remote\ndef more(x): return x + bytes(20_000_000)\n"
                "print(len(ray.get(more.remote(refs[11]))))\n"
                "del refs\nend = time.monotonic() + 300\n"
                "while files() and time.monotonic() < end: time.sleep(0.05)\n"
                "print(files())\n")
        self.assertEqual(out, f"{list(range(12))} [] True\n22000000\n0\n")

    def test_what_a_dead_owner_leaves_is_freed(self):
        out = self.finish(
            "import ray, time\nray.init(num_cpus=1, object_store_memory=10_000_000)\n"
            "@ray.remote\nclass A:\n    def put(self): self.kept = ray.put(b'x' * 8_000_000); return [self.kept]\n"
            "a = A.remote(); ref, = ray.get(a.put.remote())\nprint(len(ray.get(ref))); ray.kill(a)\n"
            "end = time.monotonic() + 300\n"
            "while True:\n"
            "    try: print(len(ray.get(ray.put(b'x' * 7_000_000)))); break\n"
            "    except ray.exceptions.ObjectStoreFullError: assert time.monotonic() < end; time.sleep(0.05)\n"
            "try: ray.get(ref)\nexcept ray.exceptions.OwnerDiedError: print('died')\n")
        self.assertEqual(out, "8000000\n7000000\ndied\n")

    def test_owners_stay(self):
        """Processes that are idle end if there are more than CPUs, but not while others need what they own."""
        out = self.finish(
            "import ray\nray.init(num_cpus=1)\n"
            "@ray.remote\nclass Barrier:\n"
            "    def __init__(self):\n        import asyncio\n        self.n, self.all = 0, asyncio.Event()\n"
            "    async def meet(self, n):\n"
            "        self.n += 1\n        if self.n == n: self.all.set()\n        await self.all.wait()\n"
            "@ray.remote(num_cpus=0)\nclass Counter:\n    def add(self): return 1\n"
            "@ray.remote\ndef make(barrier):\n"
            "    ray.get(barrier.meet.remote(8))\n"
            "    return ray.put(b'x' * 200_000), Counter.remote()\n"
            "barrier = Barrier.remote()\nmade = ray.get([make.remote(barrier) for _ in range(8)])\n"
            "import time\nend = time.monotonic() + 300\n"
            "while ray.available_resources().get('CPU', 0) < 1 and time.monotonic() < end: time.sleep(0.05)\n"
            "print({len(x) for x in ray.get([m[0] for m in made])}, sum(ray.get([m[1].add.remote() for m in made])))\n")
        self.assertEqual(out, "{200000} 8\n")

    def test_a_fork(self):
        """A fork of a driver can do nothing with its cluster, ends nothing, and may have one of its own."""
        out = self.finish(
            "import os, ray, sys\nray.init(num_cpus=1)\n"
            "@ray.remote\ndef f(): return os.getppid() and 1\n"
            "ref = f.remote()\npid = os.fork()\n"
            "if pid == 0:\n"
            "    for do in (lambda: ray.get(ref), lambda: f.remote()):\n"
            "        try: do()\n        except ray.exceptions.RaySystemError as e: print('fork' in str(e), flush=True)\n"
            "    del ref, do\n    sys.exit(ray.is_initialized())\n"
            "print(os.waitpid(pid, 0)[1], flush=True)\nprint(ray.get([ref, f.remote()]))\n")
        self.assertEqual(out, "True\nTrue\n0\n[1, 1]\n")

    def test_a_generator_that_is_run_again(self):
        """What came before its process died does not come twice."""
        out = self.finish(
            "import os, ray, tempfile\nray.init(num_cpus=1)\n"
            "@ray.remote\ndef g(path):\n"
            "    yield 1\n    yield b'x' * 200_000\n"
            "    if not os.path.exists(path):\n        open(path, 'w').close()\n        os._exit(1)\n"
            "    yield 3\n"
            "with tempfile.TemporaryDirectory() as d:\n"
            "    got = [ray.get(r) for r in g.remote(d + '/x')]\n    print(got[0], len(got[1]), got[2:])\n")
        self.assertEqual(out, "1 200000 [3]\n")

    def test_a_cancellation_comes_with_its_call(self):
        """The process reads both at once: it was stopped when they came."""
        out = self.finish(
            "import asyncio, os, ray, signal\nray.init(num_cpus=2)\n"
            "@ray.remote\nclass A:\n"
            "    async def pid(self): return os.getpid()\n"
            "    async def wait(self): await asyncio.Event().wait()\n"
            "a = A.remote()\npid = ray.get(a.pid.remote())\n"
            "for _ in range(20):\n"
            "    os.kill(pid, signal.SIGSTOP)\n"
            "    ref = a.wait.remote()\n    ray.cancel(ref)\n    os.kill(pid, signal.SIGCONT)\n"
            "    try: ray.get(ref)\n    except ray.exceptions.TaskCancelledError: pass\n"
            "@ray.remote\ndef f(x): return x\n"
            "never = a.wait.remote()\nref = f.remote(never)\nray.cancel(ref)\n"  # Ray itself may crash here
            "try: ray.get(ref)\nexcept ray.exceptions.TaskCancelledError: print('cancelled')\n")
        self.assertEqual(out, "cancelled\n")

    def test_a_cancellation_in_the_middle_of_a_message(self):
        """The message is sent whole, and what a task that waits has lent is given back."""
        here = os.path.dirname(os.path.abspath(__file__))
        out = self.finish(
            "import ray\nray.init(num_cpus=1)\n"
            "@ray.remote(num_cpus=0)\nclass A:\n"
            "    def __init__(self):\n        import asyncio\n        self.n, self.called = 0, asyncio.Event()\n"
            "    async def add(self): self.n += 1; self.called.set(); return self.n\n"
            "    async def clear(self): self.called.clear()\n"
            "    async def wait(self): await self.called.wait()\n"
            "@ray.remote\ndef calls(a):\n    while True: ray.get(a.add.remote())\n"
            "@ray.remote\ndef puts(a):\n    ray.get(a.add.remote())\n    while True: ray.put(1)\n"  # most of the time is in finalizers
            "@ray.remote\ndef call(a): return ray.get(a.add.remote())\n"
            "a = A.remote()\nray.get(a.add.remote())\n"
            "for f in [calls, puts] * 5:\n"
            "    ray.get(a.clear.remote())\n    ref = f.remote(a)\n    ray.get(a.wait.remote(), timeout=300)\n    ray.cancel(ref)\n"
            "    try: ray.get(ref, timeout=300)\n    except ray.exceptions.TaskCancelledError: pass\n"
            "    assert ray.get(call.remote(a), timeout=300) > 1\n"
            "import time\nend = time.monotonic() + 300\n"
            "while ray.available_resources().get('CPU') != 1 and time.monotonic() < end: time.sleep(0.05)\n"
            "print(ray.available_resources()['CPU'])\n",
            env={**os.environ, "RAY_preload_python_modules": "halves", "PYTHONPATH": os.pathsep.join([here, os.path.dirname(here)])})
        self.assertEqual(out, "1.0\n")

    def test_an_interrupt_in_the_middle_of_a_message(self):
        """^C waits until a message is whole, and ends a wait at once."""
        here = os.path.dirname(os.path.abspath(__file__))
        out = self.finish(
            "import os, halves, ray, signal, threading, time\n"
            "def interrupted(_, frame):\n"
            "    if frame.f_code.co_filename != '<string>' and not stop: raise KeyboardInterrupt\n"  # which nothing there would catch
            "stop, came = [], 0\nsignal.signal(signal.SIGINT, interrupted)\nray.init(num_cpus=1)\n"
            "@ray.remote(num_cpus=0)\nclass A:\n"
            "    def __init__(self):\n        import asyncio\n        self.n, self.never = 0, asyncio.Event()\n"
            "    async def add(self): self.n += 1; return self.n\n"
            "    async def wait(self): await self.never.wait()\n"
            "a = A.remote()\nray.get(a.add.remote())\n"
            "def often():\n    while not stop: time.sleep(0.015); os.kill(os.getpid(), signal.SIGINT)\n"
            "thread = threading.Thread(target=often); thread.start()\n"
            "while came < 40:\n"
            "    try: ray.get(a.add.remote())\n    except KeyboardInterrupt: came += 1\n"
            "try: ray.get(a.wait.remote())\nexcept KeyboardInterrupt: came += 1\n"
            "stop.append(1); thread.join()\n"
            "print(came, ray.get(a.add.remote(), timeout=300) > 20)\n"
            "ray.shutdown()\nprint(signal.getsignal(signal.SIGINT) is interrupted)\n",
            env={**os.environ, "PYTHONPATH": os.pathsep.join([here, os.path.dirname(here)])})
        self.assertEqual(out, "41 True\nTrue\n")

    def test_a_module_with_an_actor_that_it_calls(self):
        """Its process does not import the module, which would wait for itself."""
        with tempfile.TemporaryDirectory() as top:
            with open(os.path.join(top, "registry.py"), "w") as f:
                f.write("import ray\n"
                        "@ray.remote\nclass Registry:\n"
                        "    def __init__(self): self.names = []\n"
                        "    def add(self, name): self.names.append(name); return self.names\n"
                        "kept = []  # an actor ends with its last handle\n"
                        "def register(name):\n"
                        "    if not ray.is_initialized(): return\n"
                        "    kept.append(Registry.options(name='registry', get_if_exists=True).remote())\n"
                        "    return ray.get(kept[-1].add.remote(name), timeout=300)\n"
                        "register('a')\n")
            out = self.finish("import sys\nsys.path.insert(0, sys.argv[1])\nimport ray, registry\nray.init(num_cpus=1)\nprint(registry.register('b'), registry.register('c'))\n", args=[top])
        self.assertEqual(out, "['b'] ['b', 'c']\n")

    def test_what_calls_itself(self):
        out = self.finish(
            "import ray\nray.init(num_cpus=2)\n"
            "@ray.remote\ndef f(n, step=1): return n and 1 + ray.get(f.remote(n - step))\n"
            "@ray.remote(num_cpus=0)\nclass A:\n"
            "    def __init__(self, n, step=1): self.n = n and 1 + ray.get(A.remote(n - step).get.remote())\n"
            "    def get(self): return self.n\n"
            "print(ray.get([f.remote(2), A.remote(2).get.remote()]))\n")
        self.assertEqual(out, "[2, 2]\n")

    def test_pending_calls_are_limited(self):
        out = self.finish(
            "import ray\nray.init(num_cpus=1)\n"
            "@ray.remote(max_pending_calls=2)\nclass A:\n"
            "    def __init__(self):\n        import asyncio\n        self.event = asyncio.Event()\n"
            "    async def wait(self): await self.event.wait()\n"
            "    async def set(self): self.event.set()\n"
            "a = A.remote()\nfirst = a.wait.remote()\nlast = a.set.remote()\n"
            "try: a.wait.remote(); a.wait.remote(); a.wait.remote()\n"
            "except ray.exceptions.PendingCallsLimitExceeded as e: print('max_pending_calls' in str(e))\n"
            "ray.get([first, last])\nprint(ray.get(a.set.remote()))\n")
        self.assertEqual(out, "True\nNone\n")

    def test_names(self):
        """Each public name of Ray is served, or says what to use instead."""
        import ray

        with open(os.path.join(HERE, "names.txt")) as f:
            names = [(module, name) for module, *theirs in map(str.split, f) for name in theirs]
        refused = set()
        for module, name in names:
            with self.subTest(module=module, name=name):
                try:
                    getattr(importlib.import_module(module), name)
                except NotImplementedError as error:
                    self.assertIn(f"{module}.{name}; use ", str(error))
                    refused.add(f"{module}.{name}")
        self.assertLessEqual({"ray.data", "ray.util.as_completed", "ray.train.SyncConfig"}, refused)
        for name in _unserved._MODULES:
            with self.assertRaisesRegex(ImportError, f"does not serve {name}; use "):
                importlib.import_module(name)
        known = set(_unserved._NAMES) - {f"{module}.{name}" for module, name in names}
        self.assertEqual(known, {"ray.show_in_dashboard"})  # which Ray has, without saying so
        self.assertTrue(ray.__golaunch__)
        with self.assertRaisesRegex(NotImplementedError, "use"):
            ray.init(local_mode=True)
        with self.assertRaisesRegex(NotImplementedError, "py_executable"):
            ray.init(runtime_env=ray.runtime_env.RuntimeEnv(conda="x", pip=None))
        self.assertFalse(ray.is_initialized())
        self.assertEqual(ray.ObjectRef[int].__origin__, ray.ObjectRef)

    def test_beside_ray(self):
        """An installation beside the real ray is refused in one line."""
        import tempfile

        with tempfile.TemporaryDirectory() as other:
            os.mkdir(os.path.join(other, "ray"))
            open(os.path.join(other, "ray", "_raylet.so"), "w").close()
            process = self.run_program("import ray", env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "") + ":" + other})
            _, err = process.communicate(timeout=LIMIT)
            self.assertRegex(err.splitlines()[-1], "golaunch-ray .* and ray .* uninstall one")

    def test_the_output_of_workers(self):
        out = self.finish("import ray, time\nray.init(num_cpus=1)\n@ray.remote\ndef f():\n    print('hello')\nray.get(f.remote())\nray.shutdown()\n")
        self.assertRegex(out, r"\(f pid=\d+\)\S* hello\n")


if __name__ == "__main__":
    unittest.main()

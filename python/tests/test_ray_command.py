"""The command `ray`, and ray.job_submission: a cluster of one machine, with its real processes."""

import asyncio
import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

from base import Case, patched

import ray
from ray import _cluster, _command, _dashboard, _nodes
from ray.job_submission import JobStatus, JobSubmissionClient

_DRIVER = """import os, ray
ray.init()
print("the driver has", open("data.txt").read(), os.environ["RAY_ADDRESS"], sorted(k for k in os.environ if k in ("RANK", "WORLD_SIZE", "MASTER_ADDR")), flush=True)

@ray.remote(resources={"a": 1})
def task():
    return ray.cluster_resources()["a"]

print("the task has", ray.get(task.remote()))
"""
_TRAINER = """import os, sys
import helper
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train():
    import torch.distributed as dist

    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, (os.getcwd(), helper.here))
    return every


made = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"), run_config=RunConfig(storage_path=sys.argv[1])).fit().return_value
directories = {where for where, _ in made}
print(f"copies: {len(directories)}, other than the program's: {os.getcwd() not in directories}, {[said for _, said in made]}")
"""


class Test(Case):
    def ray(self, *args, code=0, **env):
        said = subprocess.run([sys.executable, "-m", "ray._command", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.dir.name,
                              env={**os.environ, **env}, timeout=300)
        self.assertEqual(said.returncode, code, f"ray {args}: {said.stdout}{said.stderr}")
        return said.stdout + said.stderr

    def head(self, *args):
        self.addCleanup(self.ray, "stop", "--force")
        said = self.ray("start", "--head", "--node-ip-address", "127.0.0.1", "--port", "0", "--dashboard-port", "0", *args)
        address = re.search(r"ray start --address='(.*)'", said)[1]
        os.environ["RAY_ADDRESS"] = address
        self.addCleanup(os.environ.pop, "RAY_ADDRESS", None)
        return address, re.search(r"RAY_API_SERVER_ADDRESS='(.*)' ray", said)[1]

    def get(self, url):
        with urllib.request.urlopen(url, timeout=300) as answer:
            return json.load(answer)

    def test_a_cluster(self):
        self.assertIn("ConnectionError: Could not find any running Ray instance.", self.ray("status", code=1))
        self.assertIn("`--address` is a required flag", self.ray("start", code=1))
        self.assertIn("Did not find any active Ray processes.", self.ray("stop"))
        address, dashboard = self.head("--num-cpus=2", "--resources", '{"a": 2}', "--disable_usage_stats")
        self.assertIn("already running at " + address, self.ray("start", "--head", code=1))
        for init, joins in (("", True), ("'local', num_cpus=1", False)):
            said = subprocess.run([sys.executable, "-c", f"import ray; ray.init({init}); print('a' in ray.cluster_resources())"], capture_output=True, text=True,
                                  env={**os.environ, "RAY_ADDRESS": ""})
            self.assertEqual(said.stdout, f"{joins}\n", said.stderr)
        status = self.ray("status")
        for line in ("======== Autoscaler status: ", "\nActive:\n 1 node_", "\nTotal Usage:\n 0.0/2.0 CPU\n 0.0/2.0 a\n", "\nPending Demands:\n (no resource demands)"):
            self.assertIn(line, status)
        with open(self.path("main.py"), "w") as f:
            f.write(_DRIVER)
        with open(self.path("data.txt"), "w") as f:
            f.write("what travels")
        said = self.ray("job", "submit", "--address", dashboard, "--working-dir", ".", "--submission-id", "one", "--", sys.executable, "main.py", GOLAUNCH_COORDINATOR="")
        self.assertIn(f"the driver has what travels {address} []\nthe task has 2.0\n", said)
        self.assertRegex(said, "(?s)Job 'one' submitted successfully.*Job 'one' succeeded")
        self.assertIn("Job with submission_id one already exists.", self.ray("job", "submit", "--submission-id", "one", "--", "true", code=1))
        said = self.ray("job", "submit", "--submission-id", "two", "--runtime-env-json", '{"env_vars": {"A": "a value", "PATH": "${PATH}:/${A}x"}}', "--", "sh", "-c",
                        'echo "[$A] ${PATH##*:}"; exit 7', code=1)
        self.assertRegex(said, r"(?s)\n\[a value\] /a valuex\n.*Job 'two' failed\n-*\nStatus message: Job entrypoint command failed with exit code 7")
        self.ray("job", "submit", "--no-wait", "--submission-id", "three", "--", "sleep", "1000")
        self.assertRegex(self.ray("job", "stop", "three"), "Attempting to stop job 'three'\nWaiting for .*\nJob 'three' was stopped")
        self.assertIn("Job 'one' succeeded", self.ray("job", "status", "one"))
        self.assertIn("Job four does not exist.", self.ray("job", "status", "four", code=1))
        self.assertIn("the task has 2.0", self.ray("job", "logs", "one"))
        listed = self.ray("job", "list")
        self.assertEqual(re.findall(r"submission_id='(\w+)'", listed), ["three", "two", "one"])
        self.assertNotIn("a value", listed)
        self.assertIn("NotImplementedError: golaunch does not serve `ray memory`; use ray status", self.ray("memory", code=1))
        path = re.search("Trace file written to (.*)[.]\n", self.ray("timeline"))[1]
        with open(path) as f:
            self.assertEqual(json.load(f), [])
        os.remove(path)
        self.assertEqual(self.ray("list", "tasks", "--format", "json"), "No resource in the cluster\n")
        self.assertIn("total_actors: 0\n", self.ray("summary", "actors"))
        self.assertIn("ValueError: Invalid filter key 'x' for resource 'nodes'. Available filter keys are: node_id, node_ip, ", self.ray("list", "nodes", "-f", "x=1", code=1))
        nodes = json.loads(self.ray("list", "nodes", "--format", "json"))
        self.assertEqual([(n["node_ip"], n["is_head_node"], n["state"]) for n in nodes], [("127.0.0.1", True, "ALIVE")])
        self.assertIn("No job of the cluster runs.", self.ray("stack"))
        self.read_only(dashboard, nodes)
        self.assertIn("Stopped all 3 Ray processes.", self.ray("stop"))
        self.assertRaises(OSError, self.get, dashboard + "/api/version")

    def read_only(self, dashboard, nodes):
        """As Ray 2.60 answers, where scripts look."""
        listed = self.get(dashboard + "/api/v0/nodes")
        self.assertEqual((listed["result"], listed["data"]["result"]["total"]), (True, 1))
        row, = listed["data"]["result"]["result"]
        self.assertEqual({**nodes[0], **row}, nodes[0])
        self.assertEqual(self.get(dashboard + "/api/v0/actors")["data"]["result"]["result"], [])
        for query, count in (("filter_keys=state&filter_predicates=%3D&filter_values=ALIVE", 1), ("filter_keys=state&filter_predicates=!%3D&filter_values=alive&detail=1", 0)):
            self.assertEqual(len(self.get(dashboard + "/api/v0/nodes?" + query)["data"]["result"]["result"]), count)
        self.assertEqual(self.get(dashboard + "/api/v0/tasks?limit=2")["data"]["result"]["result"], [])
        self.assertEqual(self.get(dashboard + "/api/v0/tasks?filter_keys=x&filter_predicates=%3D&filter_values=1")["result"], False)
        tasks = self.get(dashboard + "/api/v0/tasks/summarize")["data"]["result"]["result"]["node_id_to_summary"]["cluster"]
        self.assertEqual((tasks["total_tasks"], tasks["summary_by"]), (0, "func_name"))
        status = self.get(dashboard + "/api/cluster_status")["data"]["clusterStatus"]
        self.assertEqual(status["loadMetricsReport"]["usage"]["CPU"], [0.0, 2.0])
        self.assertEqual(list(status["autoscalerReport"]["activeNodes"].values()), [1])
        self.assertIn("Total Usage:", self.get(dashboard + "/api/cluster_status?format=1")["data"]["clusterStatus"])
        self.assertEqual([(j["submission_id"], j["status"]) for j in self.get(dashboard + "/api/jobs/")], [("three", "STOPPED"), ("two", "FAILED"), ("one", "SUCCEEDED")])
        self.assertEqual(self.get(dashboard + "/api/prometheus/sd"), [])
        for path, method, code in (("/api/jobs/four", "GET", 404), ("/api/actors/kill", "GET", 404), ("/api/jobs/", "POST", 405), ("/api/jobs/one", "DELETE", 405)):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(dashboard + path, method=method, data=b"{}" if method == "POST" else None), timeout=300)
            self.assertEqual(caught.exception.code, code)
            caught.exception.close()
        for user, host in ((os.geteuid(), "site.example"), (65534, "127.0.0.1")):
            before = os.geteuid()
            if before != 0 and user != before:
                self.skipTest("only root can be another user")
            os.seteuid(user)
            try:
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(urllib.request.Request(dashboard + "/api/version", headers={"Host": host}), timeout=300)
            finally:
                os.seteuid(before)
            self.assertEqual(caught.exception.code, 403)
            caught.exception.close()

    def test_the_client(self):
        address, dashboard = self.head()
        for where in (dashboard, address, "auto", None):
            self.assertEqual(JobSubmissionClient(where)._coordinator, address)
        client = JobSubmissionClient(dashboard)
        job = client.submit_job(entrypoint="echo one; echo two >&2", metadata={"who": "me"})
        self.assertRegex(job, "^raysubmit_")

        async def lines():
            return [line async for line in client.tail_job_logs(job)]

        self.assertEqual(sorted(asyncio.run(lines())), ["one\n", "two\n"])
        info = client.get_job_info(job)
        self.assertEqual((info.status, info.entrypoint, info.metadata, info.driver_exit_code), (JobStatus.SUCCEEDED, "echo one; echo two >&2", {"who": "me"}, 0))
        self.assertTrue(client.get_job_status(job).is_terminal() and info.end_time >= info.start_time > 0)
        self.assertEqual(sorted(client.get_job_logs(job).split()), ["one", "two"])
        self.assertFalse(client.stop_job(job))
        self.assertRaisesRegex(ValueError, "must be an existing directory", client.submit_job, entrypoint="true", runtime_env={"working_dir": self.path("none")})
        os.mkfifo(self.path("pipe"))
        self.assertRaisesRegex(RuntimeError, "^workspace .*\"pipe\" cannot travel: it is a FIFO; remove it, or list it in .rayignore$", client.submit_job, entrypoint="true",
                               runtime_env={"working_dir": self.dir.name})
        self.assertRaisesRegex(NotImplementedError, "does not fetch", client.submit_job, entrypoint="true", runtime_env={"working_dir": "s3://bucket/x.zip"})
        self.assertRaises(NotImplementedError, client.submit_job, entrypoint="true", entrypoint_num_gpus=1)
        self.assertRaises(NotImplementedError, client.delete_job, job)
        self.assertRaisesRegex(ConnectionError, "Failed to connect to Ray at address: 127.0.0.1:1. cannot reach the coordinator at 127.0.0.1:1", JobSubmissionClient, "127.0.0.1:1")
        self.assertRaisesRegex(ConnectionError, "^address='127.0.0.1:1': cannot reach the coordinator at 127.0.0.1:1", ray.init, "127.0.0.1:1")

    def test_a_trainer_in_a_working_directory(self):
        """Its ranks find it on each node: each has a copy of its own."""
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("there is no torch")
        address, _ = self.head("--include-dashboard", "false", "--num-cpus", "1")
        self.ray("start", "--address", address, "--node-ip-address", "127.0.0.2", "--num-cpus", "1")
        os.mkdir(self.path("program"))
        with open(self.path("program/main.py"), "w") as f:
            f.write(_TRAINER)
        with open(self.path("program/helper.py"), "w") as f:
            f.write("import os\nhere = os.path.dirname(os.path.abspath(__file__)) == os.getcwd() and open('data.txt').read()\n")
        with open(self.path("program/data.txt"), "w") as f:
            f.write("data")
        said = self.ray("job", "submit", "--working-dir", "program", "--", sys.executable, "main.py", self.path("results"))
        self.assertIn("copies: 2, other than the program's: True, ['data', 'data']", said)

    def test_verbs(self):
        """Each of Ray 2.60's is served, or says what to use instead."""
        served = "disable-usage-stats get job list stack start status stop summary timeline".split()
        refused = ("attach check-open-ports cluster-dump cpp dashboard debug down enable-usage-stats exec get-auth-token get-head-ip get-worker-ips kill-actor logs memory metrics "
                   "microbenchmark monitor rsync-down rsync-up submit symmetric-run up").split()
        self.assertEqual(set(refused) - set(_command._UNSERVED), set())
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(shown):
            for verb in served:
                self.assertRaisesRegex(SystemExit, "^0$", _command.main, [verb, "--help"])
            for verb in [[v] for v in _command._UNSERVED] + [["job", "delete"]]:
                shown.seek(0)
                self.assertEqual(_command.main([*verb, "x"]), 1)
                self.assertIn(f"golaunch does not serve `ray {' '.join(verb)}`; use ", shown.getvalue())

    def test_a_job_that_waits(self):
        """It says so."""
        self.head("--include-dashboard", "false")
        _nodes.Processes().stop(only={p["pid"] for p in _nodes.Processes().all if p["what"] == "agent"})
        with subprocess.Popen([sys.executable, "-m", "ray._command", "job", "submit", "--submission-id", "one", "--", "true"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stderr.readline(), "Status for job 'one': PENDING\n")
            self.assertRegex(process.stderr.readline(), "^Status message: Job has not started yet. .*node")
            self.ray("job", "stop", "one")
            self.assertEqual(process.wait(300), 1)

    def test_slow_clients_of_the_dashboard(self):
        """They are cut off, and those of another user take no room."""
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        server = _dashboard._Server(("127.0.0.1", 0), "c:1")
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/api/version"
        with contextlib.ExitStack() as opened:
            os.seteuid(65534)
            try:
                for _ in range(_dashboard._MOST + 1):
                    opened.enter_context(socket.create_connection(server.server_address, 30))
            finally:
                os.seteuid(0)
            self.assertEqual(self.get(url)["coordinator"], "c:1")
            with patched(_dashboard, "_LIMIT", 0.5):
                slow = [opened.enter_context(socket.create_connection(server.server_address, 30)) for _ in range(_dashboard._MOST)]
                for sock in slow:
                    sock.sendall(b"GET /api/version HTTP/1.1\r\n")
                for sock in slow:
                    self.assertEqual(sock.recv(1), b"")
            self.assertEqual(self.get(url)["coordinator"], "c:1")

    def test_two_starts_at_once(self):
        """Neither forgets what the other has started."""
        noted = [_nodes.Processes() for _ in range(2)]
        sleeping = [subprocess.Popen(["sleep", "1000"]) for _ in noted]
        try:
            for notes, process in zip(noted, sleeping):
                self.assertTrue(notes.add("agent", process.pid, self.dir.name, "c:1"))
            self.assertLessEqual({p.pid for p in sleeping}, {p["pid"] for p in _nodes.Processes().all})
            self.assertTrue(noted[0].add("coordinator", sleeping[0].pid, self.dir.name, "c:1"))
            self.assertFalse(noted[1].add("coordinator", sleeping[1].pid, self.dir.name, "c:1"))
        finally:
            _nodes.Processes().stop(force=True, only={p.pid for p in sleeping})
            for process in sleeping:
                process.kill()
                process.wait()

    def test_a_start_that_fails(self):
        """It leaves nothing."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            said = self.ray("start", "--head", "--node-ip-address", "127.0.0.1", "--port", "0", "--dashboard-port", str(port), code=1)
        self.assertEqual(said, f"Error: the dashboard has ended with 1: cannot listen at 127.0.0.1:{port}: Address already in use; name another --dashboard-port, or "
                               "--include-dashboard=false\n")
        self.assertIn("Did not find any active Ray processes.", self.ray("stop"))

    def test_block(self):
        """A signal ends it in order once it waits, and as soon as it has started something."""
        self.addCleanup(self.ray, "stop", "--force")
        noted = os.path.join(_cluster.directory(), "processes")
        for until in (lambda process: any("block forever" in line for line in process.stdout), lambda _: self.made(noted)):
            with contextlib.suppress(FileNotFoundError):
                os.remove(noted)
            process = subprocess.Popen(
                [sys.executable, "-m", "ray._command", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", "0", "--include-dashboard", "false"],
                stdout=subprocess.PIPE, text=True)
            with process:
                until(process)
                process.terminate()
                self.assertEqual(process.wait(), 128 + 15)
            self.assertIn("Did not find any active Ray processes.", self.ray("stop"))


if __name__ == "__main__":
    unittest.main()

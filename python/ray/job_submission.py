"""Jobs on a cluster: each runs its entrypoint once, on the head of the cluster, as a job of golaunch with one rank.

The client speaks to golaunch's coordinator, with golaunch's token. It sends nothing to the dashboard.
"""

import asyncio
import datetime
import json
import os
import secrets
import string
import subprocess
import tempfile
import urllib.parse
import urllib.request
from dataclasses import dataclass
from enum import Enum
from typing import Any, Dict, Optional

from . import _cluster

PORT = 6379  # the port of a cluster's dashboard, unless `ray start` is told another
_ASK = 3.0  # seconds in which a dashboard must say where its coordinator is
_MARK = " ray-job "  # precedes the facts about a job, in the job's command
# Variables that golaunch sets for a rank. A program that starts ranks of its own must not use these
# values for them.
_OF_RANKS = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE NODE_RANK NNODES MASTER_ADDR MASTER_PORT "
             "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE")


class JobStatus(str, Enum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def __str__(self):
        return self.value

    def is_terminal(self):
        return self.value in ("STOPPED", "SUCCEEDED", "FAILED")


class JobType(str, Enum):
    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


class JobErrorType(str, Enum):
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"
    JOB_SUPERVISOR_ACTOR_DIED = "JOB_SUPERVISOR_ACTOR_DIED"


@dataclass
class DriverInfo:
    id: str
    node_ip_address: str
    pid: str


@dataclass
class JobDetails:
    type: JobType
    job_id: Optional[str]
    submission_id: Optional[str]
    driver_info: Optional[DriverInfo]
    status: JobStatus
    entrypoint: str
    message: Optional[str] = None
    error_type: Optional[str] = None
    start_time: Optional[int] = None
    end_time: Optional[int] = None
    metadata: Optional[Dict[str, str]] = None
    runtime_env: Optional[Dict[str, Any]] = None
    driver_agent_http_address: Optional[str] = None
    driver_node_id: Optional[str] = None
    driver_exit_code: Optional[int] = None

    def dict(self):
        return {**vars(self), "type": self.type.value, "status": self.status.value}


JobInfo = JobDetails


def coordinator(address=None):
    """The address of the golaunch coordinator for an address: its own HOST:PORT, or the http://
    address of the dashboard.
    """
    address = address or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        found = _cluster.address_of_auto() or (_cluster.running("auto") or {}).get("cluster")  # the coordinator of a program that has started its own cluster
        if not found:
            raise ConnectionError("Could not find any running Ray instance. Please specify the one to connect to by setting the `--address` flag or `RAY_ADDRESS` environment variable.")
        return found
    if "://" not in address:
        return address
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "ray":
        return parts.netloc
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"address={address!r}: HOST:PORT of the cluster, or http://HOST:8265 of its dashboard")
    try:
        with urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}/api/version", timeout=_ASK) as answer:
            return json.loads(answer.read(1 << 16))["coordinator"]
    except (OSError, ValueError, KeyError):  # the dashboard listens on its machine only, or is not golaunch's
        return f"{parts.hostname}:{PORT}"


def run(verb, *args, env=None):
    """The output of a golaunch verb. If the verb fails, its complaint is raised as a RuntimeError.
    """
    said = _cluster._golaunch(verb, *args, env=env)
    if said.returncode == 0:
        return said.stdout
    raise RuntimeError(_cluster.complaint(said))


def _details(job):
    """A job of golaunch in Ray's words; None if this module did not submit the job."""
    before, mark, rest = job["command"].partition(_MARK)
    if not mark:
        return None
    try:
        known, end = json.JSONDecoder().raw_decode(rest)
        entrypoint = rest[end + 1:]
    except ValueError:  # the entrypoint was too long for a title
        known, entrypoint = {}, rest
    result, exit_code, message = job.get("result"), None, "Job is currently running."
    if result is None:
        status = JobStatus.RUNNING if job["phase"] in ("running", "stopping") else JobStatus.PENDING
        if status == JobStatus.PENDING:
            message = f"Job has not started yet. {job.get('waits', '')}".strip()
    elif result["ending"] == "success":
        status, exit_code, message = JobStatus.SUCCEEDED, 0, "Job finished successfully."
    elif result["ending"] in ("cancelled", "timeout"):
        status, message = JobStatus.STOPPED, "Job was intentionally stopped."
    else:
        status, exit_code = JobStatus.FAILED, result["code"]
        message = "\n".join([f"Job entrypoint command failed with exit code {exit_code}: {result['reason']}", result.get("cause", {}).get("tail", "")]).strip()
    return JobDetails(
        type=JobType.SUBMISSION, job_id=None, submission_id=job["id"], driver_info=None, status=status, entrypoint=entrypoint, message=message,
        error_type="JOB_ENTRYPOINT_COMMAND_ERROR" if status == JobStatus.FAILED else None, start_time=_ms(job.get("submitted")), end_time=_ms(job.get("finished")),
        metadata=known.get("metadata") or {}, runtime_env=known.get("runtime_env") or {}, driver_node_id=(job.get("nodes") or [None])[0], driver_exit_code=exit_code)


def _ms(text):
    return int(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000) if text else None


class JobSubmissionClient:
    """Submits jobs to a cluster, and says how they are."""

    def __init__(self, address=None, create_cluster_if_needed=False, cookies=None, metadata=None, headers=None, verify=True):
        self._coordinator = coordinator(address)
        self._address = address if address not in (None, "auto") else self._coordinator
        self._metadata = dict(metadata or {})
        self._nodes()  # checks that the cluster answers

    def _on(self):
        return "--coordinator", self._coordinator

    def _nodes(self):
        try:
            return json.loads(run("status", *self._on(), "--json"))["nodes"]
        except RuntimeError as error:
            raise ConnectionError(f"Failed to connect to Ray at address: {self._address}. {error}") from error

    def get_address(self):
        return self._address

    def get_version(self):
        return "4"

    def submit_job(self, *, entrypoint, job_id=None, runtime_env=None, metadata=None, submission_id=None, entrypoint_num_cpus=None, entrypoint_num_gpus=None,
                   entrypoint_memory=None, entrypoint_resources=None, entrypoint_label_selector=None):
        """Submits a job, and returns its id. The entrypoint is a line for a shell."""
        if entrypoint_num_gpus or entrypoint_resources or entrypoint_label_selector:
            raise NotImplementedError("golaunch runs an entrypoint on the head, and reserves nothing for it; ask for GPUs and resources in its tasks and actors")
        for name, value in (metadata or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError("metadata: a dictionary of texts")
        job = submission_id or job_id or "raysubmit_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(16))
        runtime_env = dict(runtime_env or {})
        known = {"metadata": {**self._metadata, **(metadata or {})}, "runtime_env": dict(runtime_env)}
        if runtime_env.get("env_vars"):  # these facts are on a command line, where secrets must not be
            known["runtime_env"]["env_vars"] = dict.fromkeys(runtime_env["env_vars"], "***")
        args = [*self._on(), "--detach", "--job-id", job, "--nodes", "1", "--procs-per-node", "1", "--max-restarts", "0", "--grace", "3s", "--bind", "none", "--env-preset",
                "none", "--bundle", "off"]
        variables = {"RAY_ADDRESS": self._coordinator}
        if "GOLAUNCH_BINARY" in os.environ:
            args += ["--env", "GOLAUNCH_BINARY"]
        of_tasks = {k: v for k, v in runtime_env.items() if v}
        directory = of_tasks.get("working_dir")
        if directory:
            if "://" in directory:
                raise NotImplementedError(f"golaunch does not fetch a working_dir such as {directory}; name a directory here")
            if not os.path.isdir(directory):
                raise ValueError(f"directory {directory} must be an existing directory")
            if of_tasks.pop("excludes", None):
                raise NotImplementedError("golaunch does not serve runtime_env={'excludes': ...}; list them in .rayignore in the directory")
            args += ["--workspace", os.path.abspath(directory)]
            of_tasks["working_dir"] = "."
        if of_tasks:
            variables["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": of_tasks, "metadata": known["metadata"]})
        flags, own, before = _cluster.variables(runtime_env.get("env_vars") or {})
        own = {**variables, **own}
        args += [word for name in variables for word in ("--env", name)] + flags
        head = next((n for n in self._nodes() if _cluster.described(n).get("head")), None)
        if not directory:
            args += ["--dir", _cluster.described(head).get("dir", "/") if head else "/"]
        with tempfile.NamedTemporaryFile("w", suffix=".nodes") as order:
            if head:  # the job runs on that node, and nowhere else
                order.write(head["name"] + "\n")
                order.flush()
                args += ["--order", f"file:{order.name}"]
            try:
                run("run", *args, "--", *before, "sh", "-c", f"unset {_OF_RANKS}; eval \"$2\"", "ray-job", json.dumps(known), entrypoint, env=own)
            except RuntimeError as error:
                if "there is a job" in str(error):
                    raise RuntimeError(f"Job with submission_id {job} already exists. Please use a different submission_id.") from None
                raise
        return job

    def list_jobs(self):
        """All jobs, the newest first."""
        jobs = [_details(j) for j in json.loads(run("jobs", *self._on(), "--all", "--json"))["jobs"]]
        return sorted((j for j in jobs if j is not None), key=lambda j: -(j.start_time or 0))

    def get_job_info(self, job_id):
        for job in self.list_jobs():
            if job.submission_id == job_id:
                return job
        raise RuntimeError(f"Request failed with status code 404: Job {job_id} does not exist.")

    def get_job_status(self, job_id):
        return self.get_job_info(job_id).status

    def get_job_logs(self, job_id):
        self.get_job_info(job_id)
        said = _cluster._golaunch("logs", *self._on(), "--prefix=false", job_id)
        if said.returncode != 0:
            raise RuntimeError(_cluster.complaint(said))
        return said.stdout + said.stderr

    def stop_job(self, job_id):
        """Stops a job, and returns whether it ran."""
        if self.get_job_status(job_id).is_terminal():
            return False
        run("stop", *self._on(), job_id)
        return True

    def delete_job(self, job_id):
        raise NotImplementedError("golaunch does not serve delete_job; it forgets the oldest of 1,000 jobs by itself")

    def follow(self, job_id):
        """A process whose standard output is the output of a job, until the job's end."""
        from golaunch.binary import find_binary

        self.get_job_info(job_id)
        return subprocess.Popen([find_binary(), "logs", *self._on(), "--prefix=false", "-f", job_id], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, bufsize=1, errors="replace")

    async def tail_job_logs(self, job_id):
        """Yields the output of a job as it comes."""
        process = self.follow(job_id)
        try:
            while True:
                line = await asyncio.get_running_loop().run_in_executor(None, process.stdout.readline)
                if not line:
                    return
                yield line
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


__all__ = ["JobSubmissionClient", "JobStatus", "JobErrorType", "JobInfo", "JobDetails", "DriverInfo", "JobType"]

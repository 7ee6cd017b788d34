"""The paths of Ray's dashboard that scripts read. The dashboard changes nothing: jobs are submitted
to golaunch's coordinator, which wants a token.
"""

import contextlib
import http.server
import ipaddress
import json
import os
import socket
import struct
import sys
import threading
import time
import urllib.parse

from . import _state
from .job_submission import JobSubmissionClient

_LIMIT = 30.0  # seconds in which a request must arrive and be answered
_MOST = 16  # requests at a time; more are refused
_STRANGERS = 4  # answers to other users, who are told that they may not ask


def _listed(what, rows, query):
    """Rows as a query wants them, by filter_keys, filter_predicates and filter_values, limit and
    detail.
    """
    filters = list(zip(*(query.get(name, []) for name in ("filter_keys", "filter_predicates", "filter_values"))))
    detail = query.get("detail", ["0"])[0].lower() in ("1", "true")
    try:
        shown, filtered = _state.selected(what, rows, filters, int(query.get("limit", [_state.MOST])[0]), True)
    except ValueError as error:
        return {"result": False, "msg": str(error), "data": {"result": None}}
    if not detail:
        basic, _ = _state.COLUMNS[what]
        shown = [{name: r[name] for name in basic} for r in shown]
    return {"result": True, "msg": "", "data": {"result": {
        "total": len(rows), "num_after_truncation": len(rows), "num_filtered": filtered, "result": shown, "partial_failure_warning": "", "warnings": None}}}


def _own(sock):
    """Whether the other end of a connection within this machine belongs to this user or to root."""
    ends = [f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}" for host, port in (sock.getpeername(), sock.getsockname())]
    with open("/proc/net/tcp") as f:
        return any(fields[1:3] == ends and int(fields[7]) in (0, os.getuid()) for fields in map(str.split, f))


def _here(host):
    """Whether a request names this machine by an address, or as localhost: any other name may
    belong to a web site.
    """
    name = urllib.parse.urlsplit("//" + host).hostname or ""
    try:
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _cut(sock):
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Unknown(Exception):
    """The dashboard has no such path."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address, coordinator):
        self.coordinator = coordinator
        self.room, self.strangers = threading.BoundedSemaphore(_MOST), threading.BoundedSemaphore(_STRANGERS)
        super().__init__(address, _Request)
        self.here = ipaddress.ip_address(self.server_address[0]).is_loopback  # for programs of the same user

    def process_request(self, request, client_address):
        try:
            room = self.strangers if self.here and not _own(request) else self.room
        except OSError:  # the process has ended
            room = self.strangers
        if room.acquire(blocking=False):
            threading.Thread(target=self._serve, args=(request, client_address, room), daemon=True).start()
        else:
            self.shutdown_request(request)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # the client has gone
            super().handle_error(request, client_address)

    def _serve(self, request, client_address, room):
        late = threading.Timer(_LIMIT, _cut, [request])
        late.daemon = True
        late.start()
        try:
            self.process_request_thread(request, client_address)
        finally:
            late.cancel()
            room.release()


class _Request(http.server.BaseHTTPRequestHandler):
    server_version = "golaunch"

    def log_message(self, *_):
        pass

    def parse_request(self):
        if not super().parse_request():
            return False
        if self.server.here and not (_own(self.connection) and _here(self.headers.get("Host", ""))):
            self._send(403, b"this dashboard is for the programs of the user who started it: see --dashboard-host\n", "text/plain")
            return False
        return True

    def do_GET(self):
        path, _, query = self.path.partition("?")
        try:
            answer = self._answer(path.strip("/").split("/"), urllib.parse.parse_qs(query))
        except _Unknown as error:
            return self._send(404, str(error).encode(), "text/plain")
        except Exception as error:  # the cluster does not answer
            return self._send(503, json.dumps({"result": False, "msg": str(error), "data": {}}).encode(), "application/json")
        self._send(200, json.dumps(answer).encode(), "application/json")

    def do_POST(self):
        self._send(405, b"golaunch's dashboard is read-only: use `ray job submit` or ray.job_submission, which speak to the coordinator\n", "text/plain")

    do_PUT = do_DELETE = do_PATCH = do_POST

    def _send(self, code, body, kind):
        self.send_response(code)
        self.send_header("Content-Type", kind + "; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, path, query):
        coordinator = self.server.coordinator
        if path == ["api", "version"]:
            from . import __version__

            return {"version": "4", "ray_version": __version__, "ray_commit": "", "session_name": "", "coordinator": coordinator}
        if path == ["api", "cluster_status"]:
            return self._status(coordinator, query.get("format", ["0"])[0] == "1")
        if path[:2] == ["api", "v0"] and len(path) == 3 and path[2] in _state.COLUMNS:
            return _listed(path[2], _state.rows(coordinator, path[2]), query)
        if path[:2] == ["api", "v0"] and path[3:] == ["summarize"] and path[2] in ("tasks", "actors"):
            made = _state.summary(path[2], _state.rows(coordinator, path[2]))
            return {"result": True, "msg": "", "data": {"result": {"result": {"node_id_to_summary": {"cluster": made}}}}}
        if path == ["api", "v0", "tasks", "timeline"]:
            return _state.timeline(coordinator)
        if path == ["api", "prometheus", "sd"]:
            return []  # golaunch metrics listens where its flags say
        if path[:2] == ["api", "jobs"]:
            client = JobSubmissionClient(coordinator)
            if len(path) == 2:
                return [j.dict() for j in client.list_jobs()]
            try:
                if len(path) == 3:
                    return client.get_job_info(path[2]).dict()
                if path[3:] == ["logs"]:
                    return {"logs": client.get_job_logs(path[2])}
            except RuntimeError as error:
                if "does not exist" in str(error):
                    raise _Unknown(f"Job {path[2]} does not exist") from None
                raise
        raise _Unknown("golaunch does not serve this path; docs/from-ray.md of golaunch lists those that it serves")

    @staticmethod
    def _status(coordinator, formatted):
        if formatted:
            return {"result": True, "msg": "Got formatted cluster status.", "data": {"clusterStatus": _state.status(coordinator)}}
        listed = _state.rows(coordinator, "nodes")
        alive = [n for n in listed if n["state"] == "ALIVE"]

        def used(nodes):
            return {name: list(pair) for name, pair in _state.usage(nodes).items()}

        return {"result": True, "msg": "Got cluster status.", "data": {
            "autoscalingStatus": None, "autoscalingError": None, "clusterStatus": {
                "time": time.time(),
                "autoscalerReport": {
                    "activeNodes": {"node_" + n["node_id"]: 1 for n in alive}, "idleNodes": None, "pendingNodes": [], "pendingLaunches": {},
                    "failedNodes": [[n["node_ip"], n["node_id"]] for n in listed if n["state"] != "ALIVE"]},
                "loadMetricsReport": {
                    "usage": used(listed), "resourceDemand": [], "pgDemand": [], "requestDemand": [], "nodeTypes": [[n["resources_total"], 1] for n in alive],
                    "usageByNode": {n["node_id"]: used([n]) for n in alive}}}}}


def main(coordinator, host, port):
    try:
        server = _Server((host, int(port)), coordinator)
    except OSError as error:
        sys.exit(f"cannot listen at {host}:{port}: {error.strerror}; name another --dashboard-port, or --include-dashboard=false")
    print(f"the dashboard listens at {server.server_address[0]}:{server.server_address[1]}", flush=True)
    server.serve_forever()

"""The golaunch command as this program's helper: it speaks to the cluster, with golaunch's own
mutual TLS.
"""

import json
import select
import socket
import subprocess

from .binary import find_binary
from .errors import GolaunchError

_END = 90.0  # seconds; the helper ends the ranks on all nodes, and has limits of its own


class Helper:
    def __init__(self, cluster, binary=None):
        ours, theirs = socket.socketpair()
        command = [binary or find_binary(), "_controller"]
        try:
            # The helper has a session of its own: a ^C on the terminal is for this program.
            self.process = subprocess.Popen(command, stdin=theirs, start_new_session=True)
        except OSError as error:
            ours.close()
            raise GolaunchError(f"cannot start {command[0]}: {error.strerror}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self.sock, self.cluster = ours, cluster
        self.text = bytearray()
        self.unsent = bytearray()
        self.answers = {}
        self.asked = 0
        self.gone = None
        cluster._register(ours.fileno(), self, select.EPOLLIN)

    def send(self, do, _then=None, **what):
        """Asks a question. It returns the question's number or, if _then is given, calls _then with
        the answer later. The cluster's lock is held.
        """
        if self.gone:
            raise GolaunchError(self.gone)
        self.asked += 1
        self.unsent += json.dumps({"id": self.asked, "do": do, "with": what}).encode() + b"\n"
        self.answers[self.asked] = _then
        self.writable()
        return self.asked

    def ask(self, do, _limit=None, **what):
        with self.cluster._lock:
            number = self.send(do, **what)
        try:
            self.cluster._wait(lambda: self.answers[number] is not None or self.gone, _limit, None)
        finally:
            answer = self.answers.pop(number)
        if answer is None:
            raise GolaunchError(self.gone)
        if answer.get("error"):
            raise (ValueError if answer.get("usage") else GolaunchError)(answer["error"])
        return answer.get("value")

    def writable(self):
        try:
            while self.unsent:
                del self.unsent[:self.sock.send(self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()
        self.cluster._modify(self.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0))

    def events(self):
        """Yields golaunch's events, but no answers; None is the end."""
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.text += data
        while True:
            line, end, rest = self.text.partition(b"\n")
            if not end:
                break
            self.text = bytearray(rest)
            told = json.loads(line)
            if "event" in told:
                yield told
            elif callable(self.answers.get(told["id"])):
                self.answers.pop(told["id"])(told)
            elif told["id"] in self.answers:
                self.answers[told["id"]] = told
        if not data:
            self.gone = "golaunch's helper process has ended, and with it all groups of this cluster"
            self.cluster._unregister(self.sock.fileno())
            yield None

    def close(self):
        """Ends the helper with everything that it has started, and waits."""
        if self.gone is None:
            self.gone = "the cluster is closed"
            self.cluster._unregister(self.sock.fileno())
        self.sock.close()
        try:
            self.process.wait(_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise GolaunchError(f"golaunch's helper had not ended all that runs after {_END:.0f} s; the guardians of its nodes do") from None

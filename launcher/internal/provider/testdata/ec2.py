#!/usr/bin/env python3
"""ec2.py DIR [ADDRESS...]

moto's EC2 on a free port, which it prints. It adds two behaviours of EC2 that moto lacks: a client
token makes one instance, and an unknown instance type is refused. A file in DIR that is named after
an action is a fault of that action. It has a number of calls, a status, a code and a message.

With addresses, each instance has one of these, and there is no capacity for more. For each instance
that begins or ends, this prints a line of JSON.

DIR/bin/aws is the real command of AWS, which takes half a second to load. This process has loaded it,
and forks for each call. No call has a stdin."""

import base64
import contextlib
import gc
import io
import json
import os
import re
import select
import socket
import sys
import tempfile
import urllib.parse
import xml.sax.saxutils

import awscli.clidriver
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

folder = sys.argv[1]
free = sys.argv[2:]
told = bool(free)
app = DomainDispatcherApplication(create_backend_app)
answers, addresses = {}, {}


def fault(action):
    path = os.path.join(folder, action)
    try:
        with open(path) as f:
            count, status, code, message = f.read().split(" ", 3)
    except FileNotFoundError:
        return None
    if int(count) == 0:
        return None
    with open(path + ".new", "w") as f:
        f.write(f"{int(count) - 1} {status} {code} {message}")
    os.replace(path + ".new", path)
    return int(status), code, message


def error(start, status, code, message):
    text = xml.sax.saxutils.escape(message)
    start(f"{status} Error", [("Content-Type", "text/xml")])
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors><RequestID>r-1</RequestID></Response>"
    return [body.encode()]


def serve(environ, start):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    form = {key: values[0] for key, values in urllib.parse.parse_qs(body.decode()).items()}
    action, token = form.get("Action", ""), form.get("ClientToken")
    failure = fault(action)
    if failure:
        return error(start, *failure)
    if action == "RunInstances":
        if token in answers:
            start("200 OK", [("Content-Type", "text/xml")])
            return [answers[token]]
        if form["InstanceType"] not in INSTANCE_TYPES:
            return error(start, 400, "InvalidParameterValue", f"Invalid value '{form['InstanceType']}' for InstanceType.")
        if told and not free:
            return error(start, 500, "InsufficientInstanceCapacity", "We currently do not have sufficient capacity.")
        if told:
            body += b"&PrivateIpAddress=" + free[0].encode()
            environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = io.BytesIO(body)
    answer = b"".join(app(environ, start))
    if action == "RunInstances":
        answers[token] = answer
    if told:
        tell(action, form, answer.decode())
    return [answer]


def tell(action, form, answer):
    if action == "RunInstances":
        names = [form[key[:-3] + "Value"] for key in form if key.endswith(".Key") and form[key] == "Name"]
        instance = re.search("<instanceId>(.*?)</instanceId>", answer)[1]
        addresses[instance] = free.pop(0)
        user_data = base64.b64decode(form.get("UserData", "")).decode()
        print(json.dumps({"id": instance, "name": names[0], "address": addresses[instance], "user_data": user_data}), flush=True)
    if action == "TerminateInstances":
        for instance in re.findall("<instanceId>(.*?)</instanceId>", answer):
            if instance in addresses:
                free.append(addresses.pop(instance))
                print(json.dumps({"id": instance}), flush=True)


# The command sends its arguments and environment, and gets its exit code, stdout and stderr.
client = f"""#!/usr/bin/perl
use Socket;
socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("{os.path.join(os.path.realpath(folder), "bin", "socket")}")) or die "connect: $!";
select(S); $| = 1;
print join("\\0", scalar(@ARGV), @ARGV, map {{"$_=$ENV{{$_}}"}} keys %ENV);
shutdown(S, 1);
$_ = <S>; ($code, $size) = split;
local $/; $_ = <S>;
print STDOUT substr($_, 0, $size); print STDERR substr($_, $size);
exit($code // 1);
"""


def command(connection):
    request = b"".join(iter(lambda: connection.recv(1 << 20), b"")).decode().split("\0")
    args, env = request[1 : 1 + int(request[0])], request[1 + int(request[0]) :]
    outputs = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
    for number, file in enumerate(outputs):
        os.dup2(file.fileno(), number + 1)
    os.environ.clear()
    os.environ.update(v.split("=", 1) for v in env)
    code = driver.main(args)
    sys.stdout.flush()
    sys.stderr.flush()
    texts = [os.pread(file.fileno(), 1 << 24, 0) for file in outputs]
    connection.sendall(f"{code} {len(texts[0])}\n".encode() + b"".join(texts))


os.mkdir(os.path.join(folder, "bin"))
with open(os.path.join(folder, "bin", "aws"), "w") as f:
    f.write(client)
os.chmod(f.name, 0o755)
driver = awscli.clidriver.create_clidriver()
with contextlib.redirect_stdout(io.StringIO()):  # a call that needs no server loads the rest
    driver.main(["ec2", "describe-instances", "--generate-cli-skeleton"])
driver.session.create_client("ec2", region_name="us-west-2", aws_access_key_id="none", aws_secret_access_key="none")
commands = socket.socket(socket.AF_UNIX)
commands.bind(os.path.join(folder, "bin", "socket"))
commands.listen(64)
server = make_server("127.0.0.1", 0, serve)  # one call at a time
print(server.server_port, flush=True)
running = set()
gc.freeze()  # children share it
while True:
    for ready in select.select([server.socket, commands], [], [])[0]:
        if ready is not commands:
            server.handle_request()
            continue
        connection, _ = commands.accept()
        pid = os.fork()
        if pid == 0:
            try:
                command(connection)
            finally:
                os._exit(0)
        connection.close()
        running.add(pid)
        running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}

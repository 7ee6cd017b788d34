#!/usr/bin/env python3
"""moto's EC2 on a free port, which it prints. It adds two behaviours of EC2 that moto lacks: a
client token makes one instance, and an unknown instance type is refused. A file in the directory of
its argument that is named after an action is a fault of that action. It has a number of calls, a
status, a code and a message."""

import io
import os
import sys
import urllib.parse
import xml.sax.saxutils

from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

faults = sys.argv[1]
app = DomainDispatcherApplication(create_backend_app)
answers = {}


def fault(action):
    path = os.path.join(faults, action)
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
    environ["wsgi.input"] = io.BytesIO(body)
    form = {key: values[0] for key, values in urllib.parse.parse_qs(body.decode()).items()}
    action, token = form.get("Action", ""), form.get("ClientToken")
    failure = fault(action)
    if failure:
        return error(start, *failure)
    if action != "RunInstances":
        return app(environ, start)
    if token in answers:
        start("200 OK", [("Content-Type", "text/xml")])
        return [answers[token]]
    if form["InstanceType"] not in INSTANCE_TYPES:
        return error(start, 400, "InvalidParameterValue", f"Invalid value '{form['InstanceType']}' for InstanceType.")
    answers[token] = b"".join(app(environ, start))
    return [answers[token]]


server = make_server("127.0.0.1", 0, serve)  # one call at a time
print(server.server_port, flush=True)
server.serve_forever()

"""Prints the tables of lines of code that this Python has, and what it reads in them itself."""
import dis
import json
import sys
import asyncio.base_events
import inspect
import threading
import typing


def tables(code):
    new = hasattr(code, "co_lines")
    if new:
        lines = [(start, end, line) for start, end, line in code.co_lines()]
    else:
        starts = list(dis.findlinestarts(code))
        ends = [start for start, _ in starts[1:]] + [len(code.co_code)]
        lines = [(start, end, line) for (start, line), end in zip(starts, ends)]
    yield {
        "name": code.co_name,
        "first": code.co_firstlineno,
        "table": (code.co_linetable if new else code.co_lnotab).hex(),
        "lines": lines,
    }
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from tables(constant)


# What is on more than one line goes back and forth.
text = """
def f(
    a,
    b,
):
    x = g(
        a,
        b
        if a
        else h(
            b),
    )
    try:
        return [
            y
            for y in x
        ]
    finally:
        with a, b:
            pass
""" + "\n" * 400 + """
    def later(): return (
        1 +
        f())
"""
codes = [compile(text, "text", "exec")]
for module in asyncio.base_events, inspect, threading, typing:
    with open(module.__file__, encoding="utf-8") as file:
        codes.append(compile(file.read(), module.__file__, "exec"))
json.dump({"minor": sys.version_info[1], "codes": [t for code in codes for t in tables(code)]}, sys.stdout)

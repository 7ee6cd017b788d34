"""A program whose threads wait in known places, and which says so. Its standard input ends it."""
import asyncio
import sys
import threading

ready = threading.Semaphore(0)
end = threading.Event()


def recurse(depth):
    if depth > 0:
        return recurse(depth - 1)
    ready.release()
    end.wait()  # the line of recurse


def numbers():
    yield 1
    ready.release()
    end.wait()  # the line of numbers
    yield 2


def drain():
    for _ in numbers():
        pass  # never mind


class Größe:
    def 等待(self):
        ready.release()
        end.wait()  # the line of 等待


async def inner():
    ready.release()
    end.wait()  # the line of inner


async def outer():
    await inner()


def compare(a):
    ready.release()
    end.wait()  # the line of compare
    return a


def through_c():
    sorted([2, 1], key=compare)  # the line of through_c


def long():
    names = {"end": end, "ready": ready}
    exec("def " + "n" * 1000 + "():\n    ready.release()\n    end.wait()\n", names)
    names["n" * 1000]()


def spin():
    ready.release()
    while not end.is_set():
        for i in range(10):
            leaf(i)


def leaf(i):
    return [str(j) for j in range(i)]


WORK = {
    "recurse": lambda: recurse(300),
    "deep": lambda: recurse(5),
    "drain": drain,
    "Größe": Größe().等待,
    "outer": lambda: asyncio.run(outer()),
    "through_c": through_c,
    "long": long,
    "spin": spin,
}


def main():
    threads = [threading.Thread(target=WORK[name], daemon=True) for name in sys.argv[1:]]
    for t in threads:
        t.start()
    for _ in threads:
        ready.acquire()
    print("ready", flush=True)
    sys.stdin.read()  # the line of main
    end.set()
    for t in threads:
        t.join()


main()

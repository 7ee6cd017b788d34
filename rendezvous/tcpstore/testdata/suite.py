"""Uses stores at 127.0.0.1 through torch's own client, and fails when an answer is not torch's. Each
argument names one store, by a list of ports that clients use in turn."""
import datetime
import itertools
import sys
import threading

from torch.distributed import TCPStore


def client(ports):
    arguments = ("127.0.0.1", next(ports), None, False, datetime.timedelta(minutes=5))
    if not hasattr(TCPStore, "libuvBackend"):  # before 2.2
        return TCPStore(*arguments, wait_for_workers=False)
    try:
        return TCPStore(*arguments, wait_for_workers=False, use_libuv=True)
    except RuntimeError:  # as Debian builds it
        return TCPStore(*arguments, wait_for_workers=False, use_libuv=False)


def use(ports):
    store = client(ports)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert store.add("count", 5) == 5 and store.add("count", -7) == -2
    assert store.get("count") == b"-2"
    before = store.num_keys()
    store.set("other", "x" * (1 << 20))
    assert len(store.get("other")) == 1 << 20
    assert store.num_keys() == before + 1
    assert store.delete_key("other") and not store.delete_key("other")
    assert store.compare_set("cas", "", "first") == b"first"
    assert store.compare_set("cas", "wrong", "second") == b"first"
    assert store.compare_set("cas", "first", "second") == b"second"
    assert store.compare_set("none", "expected", "desired") == b"expected"

    other = client(ports)
    later = threading.Thread(target=other.set, args=("later", "here"))
    later.start()
    assert store.get("later") == b"here"
    later.join()
    store.wait(["key", "later"], datetime.timedelta(minutes=5))

    # torch 1.13 cannot use a connection after a timeout, so this wait has its own.
    lost = client(ports)
    try:
        lost.wait(["never"], datetime.timedelta(seconds=1))
        raise SystemExit("a wait for a key that never comes ended")
    except RuntimeError:
        pass

    if hasattr(store, "multi_get"):  # 2.1
        assert lost.get("key") == b"value", "a wait that timed out left its connection out of step"
        store.multi_set(["a", "b"], ["1", "2"])
        store.append("a", "23")
        assert store.multi_get(["a", "b"]) == [b"123", b"2"]
        assert store.check(["a", "b"]) and not store.check(["a", "never"])
    if hasattr(store, "list_keys"):  # 2.10
        assert {"key", "later", "a", "b"} < set(store.list_keys()) and "never" not in store.list_keys()
    if hasattr(store, "barrier"):  # 2.11
        pair = [threading.Thread(target=c.barrier, args=("gate", 2, datetime.timedelta(minutes=5))) for c in (store, other)]
        for t in pair:
            t.start()
        for t in pair:
            t.join()
        assert store.get("gate") == b"2"
    if getattr(store, "libuvBackend", False) and hasattr(store, "queue_push"):  # 2.8
        popped = []
        first = threading.Thread(target=lambda: popped.append(store.queue_pop("queue")))
        first.start()
        other.queue_push("queue", "1")
        first.join()
        other.queue_push("queue", "2")
        assert popped == [b"1"] and other.queue_len("queue") == 1 and other.queue_pop("queue") == b"2"

    # Once the store has a value, every client reads it, even if the client has read an earlier
    # value.
    if hasattr(store, "multi_get"):
        ids = [f"id{i}" for i in range(782)]
        readers = [client(ports) for _ in range(4)]
        got = []
        several = [threading.Thread(target=lambda c=c: got.append(c.multi_get(ids))) for c in readers]
        for t in several:
            t.start()
        for key in ids:
            store.set(key, key * 30)
        for t in several:
            t.join()
        assert all(values == [(key * 30).encode() for key in ids] for values in got) and len(got) == 4
        for i in range(100):
            store.set("id0", str(i))
            assert store.check(["id0"])  # the store has the value
            assert [c.get("id0") for c in readers] == [str(i).encode()] * 4
        assert store.delete_key("id0") and not any(c.check(["id0"]) for c in readers)


for found in sys.argv[1:]:
    use(itertools.cycle(int(port) for port in found.split(",")))
print("ok")

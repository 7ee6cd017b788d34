class Order:
    """An order to become a rank: program, arguments, environment, directory, files, placement."""

    def __init__(self, words, fds):
        self.fds = fds
        (self.kind, self.program, self.dir, self.cpus, self.memory, n, *rest) = words
        self.kind = self.kind.decode()
        self.cpus = [int(c) for c in self.cpus.split()]
        n, m = (int(x) for x in n.split())
        self.orig_argv, self.argv, self.env = rest[:n], rest[n : n + m], rest[n + m :]


class Wrapper:
    """Knows what a script that started this interpreter, such as pyenv's, has changed."""

    def __init__(self, given):
        given = pairs(given)
        self.changed = {name: value for name, value in pairs(words_of("environ")).items() if given.get(name) != value and not name.startswith(MARK)}
        self.removed = given.keys() - pairs(words_of("environ")).keys()
        # CPython itself sets LC_CTYPE if the locale is C (PEP 538).
        self.own = {name: value for name, value in os.environb.items() if name not in pairs(words_of("environ"))}
        self.name = words_of("cmdline")[0]

    def wrap(self, order):
        order.orig_argv[0] = self.name
        if self.changed or self.removed:
            env = pairs(order.env)
            env.update(self.changed)
            order.env = [name + b"=" + value for name, value in env.items() if name not in self.removed]
        order.environ = {**self.own, **pairs(order.env)}


def words_of(name):
    with open("/proc/self/" + name, "rb") as f:
        return f.read().split(b"\0")[:-1]


def pairs(env):
    """Returns an environment as a dict. The first of two variables with one name counts."""
    found = {}
    for word in env:
        name, equals, value = word.partition(b"=")
        if equals and name:
            found.setdefault(name, value)
    return found

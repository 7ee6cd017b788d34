def entropy():
    """Returns the generators and seeds of NumPy and torch that were seeded at random, because every
    fork would repeat their numbers. Also returns why they cannot be seeded anew, or "". It does not
    see frozen objects (gc.freeze)."""
    kinds = set()
    for name, of in ("numpy.random", "BitGenerator"), ("numpy.random", "SeedSequence"), ("torch", "Generator"):
        new = [getattr(sys.modules.get(name), of, None)]
        while new:
            kind = new.pop()
            if isinstance(kind, type) and kind not in kinds:
                kinds.add(kind)
                new += kind.__subclasses__()
    if not kinds:
        return [], ""
    # The garbage collector does not track torch's generators, nor dicts and tuples that hold only
    # untracked objects. Find them from the objects that refer to them.
    found, seen, look = {}, set(), [o for o in gc.get_objects() if type(o) not in REFERS_TO_NONE]
    while look:
        referents = gc.get_referents(*look)
        found.update((id(o), o) for o in compress(referents, map(kinds.__contains__, map(type, referents))))
        holders = {id(o): o for o in compress(referents, map((dict, tuple).__contains__, map(type, referents))) if not gc.is_tracked(o)}
        look = [o for at, o in holders.items() if o and at not in seen]
        seen.update(holders)
    seeded = [o for o in found.values() if is_random(o)]
    for o in seeded:
        try:
            fresh(o)
        except Exception as e:
            return [], "a random generator, %s, cannot be seeded anew: %s" % (type(o).__name__, e)
    return seeded, ""


# The types of a method, a slot and an attribute of a type in C.
REFERS_TO_NONE = {type(str.join), type(object.__init__), type(type.__dict__["__dict__"])}


def is_random(o):
    """Reports whether a seed is random. A random seed has 128 bits in NumPy, and 53 or 64 in torch,
    so it is larger than a constant in a program."""
    if hasattr(o, "initial_seed"):
        return o.initial_seed() >> 32 and o.initial_seed() != TORCH_SEED
    seeds = o if hasattr(o, "spawn_key") else getattr(o, "seed_seq", getattr(o, "_seed_seq", None))  # _seed_seq before NumPy 1.25
    entropy = getattr(seeds, "entropy", 0)
    return isinstance(entropy, int) and entropy >> 96


class Seeded:
    """Knows which generators of the module random were seeded at random during imports."""

    def __enter__(self):
        import random

        self.random, self.plain, self.found = random.Random, random.Random.seed, []

        def seed(generator, a=None, version=2):
            if a is None:
                self.found.append(generator)
            elif generator in self.found:
                self.found.remove(generator)
            return self.plain(generator, a, version)

        random.Random.seed = seed
        return self

    def __exit__(self, *_):
        self.random.seed = self.plain


def reseed(generators):
    while generators:
        generator = generators.pop()
        if generator is getattr(sys.modules.get("torch"), "default_generator", None):
            sys.modules["torch"].seed()  # also for GPUs, whose generators do not exist yet
        elif hasattr(generator, "seed"):  # a generator of the module random, or of torch
            generator.seed()
        else:
            generator.__setstate__(fresh(generator))


def fresh(o):
    """Returns a fresh state for one of NumPy's generators or seeds. Returns None for an object with
    a method seed."""
    if hasattr(o, "seed"):
        return None
    return type(o)().__reduce__()[2] if hasattr(o, "spawn_key") else type(o)().__getstate__()

def entropy():
    """Returns what NumPy and torch draw random numbers from and was seeded by chance, each of which a fork would double, and why it cannot be seeded
    anew, if it cannot. It sees nothing that the collector does not look at any more (gc.freeze)."""
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
    # Torch's generators, and what holds nothing but them, are not the collector's own: they are found by what refers to them.
    found, seen, look = {}, set(), [o for o in gc.get_objects() if type(o) not in REFERS_TO_NONE]
    while look:
        referents = gc.get_referents(*look)
        found.update((id(o), o) for o in compress(referents, map(kinds.__contains__, map(type, referents))))
        holders = {id(o): o for o in compress(referents, map((dict, tuple).__contains__, map(type, referents))) if not gc.is_tracked(o)}
        look = [o for at, o in holders.items() if o and at not in seen]
        seen.update(holders)
    chance = [o for o in found.values() if by_chance(o)]
    for o in chance:
        try:
            fresh(o)
        except Exception as e:
            return [], "a random generator, %s, cannot be seeded anew: %s" % (type(o).__name__, e)
    return chance, ""


# What a method of one of C's types, a slot of it and an attribute of it are.
REFERS_TO_NONE = {type(str.join), type(object.__init__), type(type.__dict__["__dict__"])}


def by_chance(o):
    """Chance has 128 bits in NumPy, and 53 or 64 in torch, which are never so few that they could be somebody's constant."""
    if hasattr(o, "initial_seed"):
        return o.initial_seed() >> 32 and o.initial_seed() != TORCH_SEED
    seeds = o if hasattr(o, "spawn_key") else getattr(o, "seed_seq", getattr(o, "_seed_seq", None))  # the latter before NumPy 1.25
    entropy = getattr(seeds, "entropy", 0)
    return isinstance(entropy, int) and entropy >> 96


class Seeded:
    """Knows which generators of the module random were seeded by chance while modules were imported."""

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


def reseed(chance):
    while chance:
        generator = chance.pop()
        if generator is getattr(sys.modules.get("torch"), "default_generator", None):
            sys.modules["torch"].seed()  # those of GPUs too, which are not there yet
        elif hasattr(generator, "seed"):  # of the module random, or torch's
            generator.seed()
        else:
            generator.__setstate__(fresh(generator))


def fresh(o):
    """Returns the state of another of NumPy's generators or seeds of the same type; None for what seeds itself."""
    if hasattr(o, "seed"):
        return None
    return type(o)().__reduce__()[2] if hasattr(o, "spawn_key") else type(o)().__getstate__()

"""Workers along named axes, such as data, pipeline and tensor parallel."""


class NamedSharding:
    """layout is a nested list of workers' indexes, or an array, with an axis for each of names.

        NamedSharding([[0, 1], [2, 3]], ["data_parallel", "tensor_parallel"])
    """

    def __init__(self, layout, names):
        layout = layout.tolist() if hasattr(layout, "tolist") else layout
        self.names = list(names)
        self.shape = {}
        self._coords = {}
        level = layout
        for name in self.names:
            if not isinstance(level, (list, tuple)) or not level:
                raise ValueError(f"the layout has fewer axes than names: {self.names}")
            if name in self.shape:
                raise ValueError(f"two axes are called {name!r}")
            self.shape[name] = len(level)
            level = level[0]
        self._walk(layout, ())
        if sorted(self._coords) != list(range(len(self._coords))):
            raise ValueError(f"the layout has the workers {sorted(self._coords)}, and not each from 0 to {len(self._coords) - 1} once")

    def _walk(self, level, at):
        if len(at) == len(self.names):
            if not isinstance(level, int):
                raise ValueError(f"the layout has {level!r} where a worker's index should be")
            if level in self._coords:
                raise ValueError(f"worker {level} is in the layout twice")
            self._coords[level] = dict(zip(self.names, at))
            return
        name = self.names[len(at)]
        if not isinstance(level, (list, tuple)) or len(level) != self.shape[name]:
            raise ValueError(f"the layout is not rectangular along {name!r}")
        for i, inner in enumerate(level):
            self._walk(inner, at + (i,))

    def __len__(self):
        return len(self._coords)

    def get_worker_coords(self, worker):
        """The position of a worker along each axis."""
        return self._coords[worker]

    def get_axis_size(self, name):
        return self.shape[name]

    def get_axis_index(self, name):
        return self.names.index(name)

    def get_ranks_by_coord(self, **at):
        """The workers at a position along some axes."""
        return sorted(w for w, c in self._coords.items() if all(c[name] == i for name, i in at.items()))

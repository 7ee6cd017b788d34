raise ImportError("golaunch-ray does not serve ray.train yet; use a torchrun program under golaunch, docs/from-ray.md shows how")

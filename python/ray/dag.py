raise ImportError("golaunch-ray does not serve ray.dag; use references as arguments")

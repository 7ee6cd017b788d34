raise ImportError("golaunch-ray does not serve ray.serve; use a server of its own, started by golaunch")

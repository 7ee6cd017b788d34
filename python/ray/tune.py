raise ImportError("golaunch-ray does not serve ray.tune; use one golaunch job for each trial")

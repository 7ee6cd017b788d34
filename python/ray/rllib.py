raise ImportError("golaunch-ray does not serve ray.rllib; use worker groups or ray.remote")

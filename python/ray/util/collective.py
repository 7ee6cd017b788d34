raise ImportError("golaunch-ray does not serve ray.util.collective; use torch.distributed among the actors")

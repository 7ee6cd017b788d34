raise ImportError("golaunch-ray does not serve ray.util.multiprocessing yet; use ray.util.ActorPool, or golaunch.Executor")

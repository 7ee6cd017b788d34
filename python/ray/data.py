raise ImportError("golaunch-ray does not serve ray.data; use a torch DataLoader (docs/from-ray.md)")

"""A working directory that travels."""

import os
import tempfile

import ray

with tempfile.TemporaryDirectory() as top:
    for name, text in {"helper.py": "VALUE = 41\n", "data/one": "1", "left/behind": "", "model.ckpt": "large", ".gitignore": "*.ckpt\nleft/\n"}.items():
        os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
        with open(os.path.join(top, name), "w") as f:
            f.write(text)
    ray.init(num_cpus=2, log_to_driver=False, runtime_env={"working_dir": top, "env_vars": {"A": "a"}})
    with open(os.path.join(top, "helper.py"), "w") as f:
        f.write("VALUE = 'changed'\n")

    @ray.remote
    def look():
        import helper

        return helper.VALUE, sorted(n for n in os.listdir() if n != "__pycache__"), open("data/one").read(), os.environ["A"], os.getcwd() == top

    @ray.remote
    class Actor:
        def look(self):
            return ray.get(look.remote()), os.environ.get("B")

    print("=", ray.get(look.remote()))
    print("=", ray.get(Actor.options(runtime_env={"env_vars": {"B": "b"}}).remote().look.remote()))
    print("=", os.getcwd() != top)
    ray.shutdown()

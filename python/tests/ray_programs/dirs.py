"""A working directory that travels, variables, and what each process calls first."""

import os
import sys
import tempfile

import ray


def setup():
    os.environ["SETUP"] = "called"


with tempfile.TemporaryDirectory() as top, tempfile.TemporaryDirectory() as path:
    with open(os.path.join(path, "other.py"), "w") as f:
        f.write("VALUE = 42\n")
    for name, text in {"helper.py": "VALUE = 41\n", "data/one": "1", "left/behind": "", "model.ckpt": "large", ".gitignore": "*.ckpt\nleft/\n"}.items():
        os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
        with open(os.path.join(top, name), "w") as f:
            f.write(text)
    ray.init(num_cpus=2, log_to_driver=False, runtime_env={"working_dir": top, "env_vars": {"A": "a", "PYTHONPATH": path}, "worker_process_setup_hook": setup})
    with open(os.path.join(top, "helper.py"), "w") as f:
        f.write("VALUE = 'changed'\n")

    @ray.remote
    def look():
        import helper
        import other

        files = sorted(n for n in os.listdir() if n != "__pycache__")
        return helper.VALUE, other.VALUE, os.environ["SETUP"], sys.flags.hash_randomization, files, open("data/one").read(), os.environ["A"], os.getcwd() == top

    @ray.remote
    class Actor:
        def look(self):
            return ray.get(look.remote()), os.environ.get("B")

    print("=", ray.get(look.remote()))
    print("=", ray.get(Actor.options(runtime_env={"env_vars": {"B": "b"}}).remote().look.remote()))
    print("=", ray.get(look.options(runtime_env={"env_vars": {"PYTHONHASHSEED": "0"}}).remote()))  # for its interpreter
    print("=", os.getcwd() != top)
    ray.shutdown()

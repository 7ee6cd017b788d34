"""Records Ray's own output for the programs in ray_programs, and its public names: python record_ray.py [PROGRAM...], with a Python that has ray 2.60."""

import ast
import glob
import os
import subprocess
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_programs")


def said(text):
    """The output of a program, without the log lines of Ray."""
    return "".join(line + "\n" for line in text.splitlines() if line.startswith("= "))


def public(home):
    """The names of each module: those of __all__ or, without it, those that its text marks as public. Some modules need packages that are not installed."""
    modules = ("ray", "ray.experimental", "ray.job_submission", "ray.runtime_env", "ray.train", "ray.train.torch", "ray.util", "ray.util.collective",
               "ray.util.multiprocessing", "ray.util.state", "ray.actor", "ray.exceptions", "ray.runtime_context",
               "ray.util.placement_group", "ray.util.queue", "ray.util.scheduling_strategies")
    for module in modules:
        path = os.path.join(home, *module.split(".")[1:])
        with open(os.path.join(path, "__init__.py") if os.path.isdir(path) else path + ".py") as f:
            tree = ast.parse(f.read())
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Call)) and "__all__" in ast.unparse(node).partition("[")[0]:
                names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node in tree.body and any("PublicAPI" in ast.unparse(d) for d in node.decorator_list):
                names.add(node.name)
        yield " ".join([module, *sorted(n for n in names if not n.startswith("_"))]) + "\n"


if __name__ == "__main__":
    import ray

    if hasattr(ray, "__golaunch__"):
        sys.exit("this Python has golaunch-ray: record with one that has ray")
    with open(os.path.join(HERE, "names.txt"), "w") as f:
        f.writelines(public(os.path.dirname(ray.__file__)))
    for program in sys.argv[1:] or sorted(glob.glob(os.path.join(HERE, "*.py"))):
        out = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
        if out.returncode != 0:
            sys.exit(f"{program} ends with {out.returncode}:\n{out.stdout}")
        with open(program[:-3] + ".out", "w") as f:
            f.write(said(out.stdout))

"""Records what Ray itself prints for the programs in ray_programs: python record_ray.py [PROGRAM...], with a Python that has ray 2.60."""

import glob
import os
import subprocess
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_programs")


def said(text):
    """What a program says, without the log lines of Ray."""
    return "".join(line + "\n" for line in text.splitlines() if line.startswith("= "))


if __name__ == "__main__":
    import ray

    if hasattr(ray, "__golaunch__"):
        sys.exit("this Python has golaunch-ray: record with one that has ray")
    for program in sys.argv[1:] or sorted(glob.glob(os.path.join(HERE, "*.py"))):
        out = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
        if out.returncode != 0:
            sys.exit(f"{program} ends with {out.returncode}:\n{out.stdout}")
        with open(program[:-3] + ".out", "w") as f:
            f.write(said(out.stdout))

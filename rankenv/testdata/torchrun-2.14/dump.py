"""A worker that writes its own environment to DUMP_DIR/rank<RANK>.json."""

import json
import os

env = dict(os.environ)
out = os.path.join(env.pop("DUMP_DIR"), "rank%s.json" % env["RANK"])
with open(out, "w") as f:
    json.dump(env, f, indent=1, sort_keys=True)
    f.write("\n")

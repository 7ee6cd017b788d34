"""Stand-ins for training programs, by the way in which they save: trainer.py WAY.

Each prints "ready" when the test may stop it. "trainer.py check PATH" exits with 0 if a checkpoint
has everything that its writer wrote.
"""
import json, multiprocessing, os, signal, struct, sys, threading, time, zipfile

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
CHUNK, CHUNKS, PAUSE = b"x" * 1000, 10, 0.1
WHOLE = len(CHUNK) * CHUNKS
stop = []


def write(file):
    for _ in range(CHUNKS):
        file.write(CHUNK)
        file.flush()
        time.sleep(PAUSE)


def save_zip(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as raw, zipfile.ZipFile(raw, "w") as z, z.open("data.pkl", "w") as f:
        write(f)


def save_raw(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        write(f)


def pt(step):
    return f"ck/ckpt_{step}.pt"


def catch():
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))


def ready():
    print("ready", flush=True)


def train(save=None, every=0, final=save_zip):
    """Makes steps. Saves after each interval, and once more when it was told to stop."""
    step = 0
    while True:
        time.sleep(0.05)
        step += 1
        if stop:
            final(pt(step))
            sys.exit(0)
        if every and step % every == 0:
            save(step)


def boundary():
    catch()
    ready()
    train()


def warm_up():
    catch()
    ready()
    for _ in range(10_000):  # a compiler that checks no flag
        time.sleep(0.05)


def evaluation():
    catch()
    ready()
    for _ in range(60):
        time.sleep(0.05)
    train()


def thread():
    ready()
    train(lambda step: threading.Thread(target=save_zip, args=(pt(step),)).start(), 60)


def process():
    ready()
    train(lambda step: multiprocessing.get_context("fork").Process(target=save_zip, args=(pt(step),)).start(), 60)


def rename():
    def save(step):
        save_zip(f"ck/tmp_step_{step}/model.pt")
        save_zip(f"ck/tmp_step_{step}/optimizer.pt")
        with open(f"ck/tmp_step_{step}/training_info.json", "w") as f:
            json.dump({"step": step}, f)
        os.rename(f"ck/tmp_step_{step}", f"ck/step_{step}")

    ready()
    train(save, 60)


def no_mark():
    ready()
    train(lambda step: save_raw(f"ck/{step}/weights.dat"), 60)


def early_latest():
    """Saves as DeepSpeed does: rank 0 writes the file latest without waiting for the others."""

    def save(step):
        at = f"ck/global_step{step}"
        if RANK == 0:
            save_zip(f"{at}/mp_rank_00_model_states.pt")
            save_zip(f"{at}/zero_pp_rank_0_mp_rank_00_optim_states.pt")
            with open("ck/latest", "w") as f:
                f.write(f"global_step{step}")
        else:
            time.sleep(2 * PAUSE * CHUNKS)
            save_zip(f"{at}/zero_pp_rank_{RANK}_mp_rank_00_optim_states.pt")

    ready()
    train(save, 60)


def workers():
    """Dies of the death of a data loader worker."""
    catch()

    def work():
        signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
        while True:
            time.sleep(1)

    loaders = [multiprocessing.get_context("fork").Process(target=work, daemon=True) for _ in range(2)]
    for w in loaders:
        w.start()

    def final(path):
        save_zip(path)
        if not all(w.is_alive() for w in loaders):
            os._exit(9)

    ready()
    train(final=final)


def plain_workers():
    """Catches nothing itself, but its workers do."""
    w = multiprocessing.get_context("fork").Process(target=workers_only, daemon=True)
    w.start()
    ready()
    train(lambda step: save_zip(pt(step)), 60)


def workers_only():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    while True:
        time.sleep(1)


def ignores():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    train()


def other_node():
    """Only the last rank, on another node, writes."""
    ready()
    train(lambda step: RANK == SIZE - 1 and save_zip(pt(step)), 60)


def tensors():
    def save(step):
        at = f"ck/checkpoint-{step}"
        os.makedirs(at, exist_ok=True)
        header = json.dumps({"w": {"dtype": "U8", "shape": [WHOLE], "data_offsets": [0, WHOLE]}}).encode()
        with open(f"{at}/model.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header)
            write(f)
        save_zip(f"{at}/optimizer.pt")
        save_zip(f"{at}/rng_state.pth")
        with open(f"{at}/trainer_state.json", "w") as f:
            json.dump({"global_step": step}, f)

    ready()
    train(save, 60)


def check(path):
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(path, name) for name in os.listdir(path)]
    assert files
    for name in files:
        if name.endswith((".pt", ".pth")):
            with zipfile.ZipFile(name) as z:
                assert len(z.read("data.pkl")) == WHOLE, name
        elif not name.endswith(".json"):
            assert os.path.getsize(name) >= WHOLE, name


if sys.argv[1] == "check":
    check(sys.argv[2])
else:
    globals()[sys.argv[1]]()

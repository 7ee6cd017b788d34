#!/bin/sh
# Writes the environments that the real torchrun gives its workers: a folder per shape, a JSON
# object per rank.
#
#   mmdebstrap --variant=essential --include=python3-torch sid ROOT
#   capture.sh ROOT
#
# ROOT is a Debian root with python3-torch 2.14; both need root. Where the mirror is a snapshot
# whose Release file has expired, mmdebstrap also needs --aptopt='Acquire::Check-Valid-Until
# "false"'. Debian builds torch without libuv, hence USE_LIBUV=0 and torchrun.py.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$1
# In namespaces of its own nothing stays mounted, no process stays alive, and no port is taken,
# however the script ends.
[ "${2-}" = inside ] || exec unshare --mount --net --uts --pid --fork --kill-child "$here/capture.sh" "$root" inside
ip link set lo up
hostname golden
mount -t proc proc "$root/proc"
dumps=$(mktemp -d "$root/tmp/capture.XXXXXX")
trap 'rm -rf "$dumps"' EXIT
cp "$here/dump.py" "$here/torchrun.py" "$dumps"
inside=${dumps#"$root"}

# run SHAPE LOCAL_ADDR [NAME=value...] torchrun [ARG...]: one torchrun, with nothing else in its
# environment.
torchrun="python3 $inside/torchrun.py"
run() {
	shape=$1 addr=$2
	shift 2
	mkdir -p "$dumps/$shape"
	chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 USE_LIBUV=0 DUMP_DIR="$inside/$shape" "$@" \
		--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 --rdzv-id golden --local-addr "$addr" \
		--log-dir "$inside/log" "$inside/dump.py"
}

run 1x1 127.0.0.1 $torchrun
run 1x4 127.0.0.1 $torchrun --nproc-per-node 4 --max-restarts 3
run 2x2 127.0.0.1 $torchrun --nnodes 2 --nproc-per-node 2 --max-restarts 3 &
run 2x2 127.0.0.2 $torchrun --nnodes 2 --nproc-per-node 2 --max-restarts 3
wait $!
run inherited 127.0.0.1 RANK=7 WORLD_SIZE=8 OMP_NUM_THREADS=6 TORCH_NCCL_ASYNC_ERROR_HANDLING=3 CUDA_VISIBLE_DEVICES=4,5 \
	$torchrun --nproc-per-node 2
run virtual 127.0.0.1 $torchrun --nproc-per-node 2 --virtual-local-rank

for shape in 1x1 1x4 2x2 inherited virtual; do
	rm -rf "${here:?}/$shape"
	cp -r "$dumps/$shape" "$here"
done

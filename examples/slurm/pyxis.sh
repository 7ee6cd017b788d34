#!/bin/bash
# Runs a job in containers, with Pyxis and Enroot. golaunch is the only task on each node, and runs
# inside the container. The image need not contain golaunch or Slurm. The script mounts golaunch
# into the container; the binary without cgo runs with any libc. Because the image has no munge, the
# script makes a token, which the nodes share.
#
#   IMAGE=nvcr.io#nvidia/pytorch:25.06-py3 sbatch examples/slurm/pyxis.sh [ARGUMENT OF train.py ...]
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
binary=$(command -v golaunch) || exit 127
GOLAUNCH_TOKEN=$(openssl rand -hex 32) || exit
export GOLAUNCH_TOKEN
exec srun --ntasks-per-node=1 --cpu-bind=none \
	--container-image="${IMAGE:-nvcr.io#nvidia/pytorch:25.06-py3}" \
	--container-mounts="$binary:/usr/local/bin/golaunch:ro,$PWD:$PWD" --container-workdir="$PWD" \
	golaunch -- python3 train.py "$@"

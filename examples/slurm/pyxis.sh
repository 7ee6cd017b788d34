#!/bin/bash
# In a container, with Pyxis and Enroot: golaunch runs inside, the one task on each node. The image
# needs nothing of golaunch's or Slurm's: golaunch is mounted into it (the binary without cgo runs
# with any libc), and since munge is not in there, the nodes share a token that is made here.
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

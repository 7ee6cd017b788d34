#!/bin/bash
# One rank for each GPU of the job. Slurm starts this script on the first node; golaunch starts what
# it needs on all with one srun.
#
#   sbatch examples/slurm/plain.sh [ARGUMENT OF train.py ...]
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
exec golaunch -- python3 train.py "$@"

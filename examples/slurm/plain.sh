#!/bin/bash
# Runs one rank on each GPU of the job. Slurm starts this script on the first node, and golaunch
# uses one srun to start its agents on all nodes.
#
#   sbatch examples/slurm/plain.sh [ARGUMENT OF train.py ...]
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
exec golaunch -- python3 train.py "$@"

#!/bin/bash
# The same with an srun of your own, which takes whatever else the cluster wants of a step. golaunch
# is the one task on each node and starts a rank for each of the node's GPUs; --cpu-bind=none lets
# the ranks have all of its CPUs.
#
#   sbatch examples/slurm/step.sh [ARGUMENT OF train.py ...]
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
exec srun --ntasks-per-node=1 --cpu-bind=none golaunch -- python3 train.py "$@"

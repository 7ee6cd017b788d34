#!/bin/bash
# Trains until the program is done, in as many runs as that takes. Two minutes before the time
# limit, or up to a minute earlier, Slurm sends SIGTERM to all processes of the step. The ranks then
# write their checkpoint and end, and golaunch exits with 143, because it was told to stop. The exit
# code says whether another run would help (docs/slurm.md).
#
#   sbatch examples/slurm/requeue.sh [ARGUMENT OF train.py ...]
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=4:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
srun --ntasks-per-node=1 --cpu-bind=none golaunch --grace 100s --placement-timeout 10m -- python3 train.py "$@"
code=$?
case $code in
124 | 125 | 143) # nodes were missing; a node was lost, or golaunch failed; told to stop
	if [ "${SLURM_RESTART_COUNT:-0}" -lt "${RUNS:-20}" ]; then
		echo "exit code $code: requeue"
		exec scontrol requeue "$SLURM_JOB_ID"
	fi
	;;
esac
exit $code

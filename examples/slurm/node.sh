#!/bin/bash
# Checks a node before and after each job. It is both the Prolog and the Epilog of slurmd, which
# runs them as root. In slurm.conf:
#
#   Prolog=/etc/slurm/node.sh
#   Epilog=/etc/slurm/node.sh
#   PrologFlags=Alloc
#   SchedulerParameters=nohold_on_prolog_fail
#
# If golaunch doctor finds an error on a node, this script drains the node, with the codes of
# docs/doctor.md as the reason, and Slurm requeues the job that was about to start there. Warnings
# are only in the report. The script needs jq.
golaunch=/opt/golaunch/1.0/bin/golaunch
report=/run/golaunch-doctor.json # the newest report, for monitors
days=7                           # how long to keep the logs of failed jobs without --log-dir

unset CUDA_VISIBLE_DEVICES # so that doctor checks all GPUs of the node, not only the job's
found=$(mktemp $report.XXXXXX) # a file for each run, since several jobs may begin and end at once
timeout 30 $golaunch doctor --json >"$found"
code=$? codes=
if [ $code = 1 ]; then # an error; other codes, and an incomplete report, say nothing about the node
	codes=$(jq -r '[.findings[] | select(.severity == "error") | .code] | unique | join(" ")' "$found")
fi
[ -z "$codes" ] || scontrol update nodename="$SLURMD_NODENAME" state=drain reason="golaunch doctor: $codes"
[ -n "$found" ] && chmod 644 "$found" && mv "$found" $report
case $SLURM_SCRIPT_CONTEXT in
prolog_slurmd)
	[ -z "$codes" ] # Slurm requeues the job if its Prolog fails
	exit
	;;
epilog_slurmd) # with the user's rights, because the user may have put anything into the directory
	setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --clear-groups bash -s $days /tmp/golaunch-"$SLURM_JOB_UID" <<-'END'
		for job in "$2"/*; do
			[ -d "$job" ] && [ -z "$(find "$job" -mtime "-$1" -print -quit)" ] && rm -rf "$job"
		done
	END
	exit 0
	;;
esac

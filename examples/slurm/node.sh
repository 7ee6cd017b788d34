#!/bin/bash
# Looks at a node before and after each job: the Prolog and the Epilog of slurmd, which runs both as
# root. In slurm.conf:
#
#   Prolog=/etc/slurm/node.sh
#   Epilog=/etc/slurm/node.sh
#   PrologFlags=Alloc
#   SchedulerParameters=nohold_on_prolog_fail
#
# A node on which golaunch doctor finds an error is drained, with the codes of docs/doctor.md as the
# reason, and the job that was about to start there is requeued. Warnings stand in the report alone.
# Needs jq.
golaunch=/opt/golaunch/1.0/bin/golaunch
report=/run/golaunch-doctor.json # the newest, for monitors
days=7                           # how long logs of failed jobs are kept that have no --log-dir

unset CUDA_VISIBLE_DEVICES # all GPUs of the node are looked at, not the job's alone
found=$(mktemp $report.XXXXXX) # jobs that begin and end together have one each
timeout 30 $golaunch doctor --json >"$found"
code=$? codes=
if [ $code = 1 ]; then # there is an error; other codes say nothing of the node, nor does a report that there is no room for
	codes=$(jq -r '[.findings[] | select(.severity == "error") | .code] | unique | join(" ")' "$found")
fi
[ -z "$codes" ] || scontrol update nodename="$SLURMD_NODENAME" state=drain reason="golaunch doctor: $codes"
[ -n "$found" ] && chmod 644 "$found" && mv "$found" $report
case $SLURM_SCRIPT_CONTEXT in
prolog_slurmd)
	[ -z "$codes" ] # Slurm requeues the job if its Prolog fails
	exit
	;;
epilog_slurmd) # with the rights of the user, who may have put anything there
	setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --clear-groups bash -s $days /tmp/golaunch-"$SLURM_JOB_UID" <<-'END'
		for job in "$2"/*; do
			[ -d "$job" ] && [ -z "$(find "$job" -mtime "-$1" -print -quit)" ] && rm -rf "$job"
		done
	END
	exit 0
	;;
esac

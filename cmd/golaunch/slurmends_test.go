package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// keeper is a rank that counts warnings. It is ready when it has a notice and $2 warnings, and the
// file busy$1 does not exist. Warnings may arrive later on one node than another node's report; $1
// names the job.
const keeper = `n=0; trap 'n=$((n+1))' USR1; trap : TERM; touch up$1$RANK
while [ ! -e $GOLAUNCH_NOTICE_FILE ]; do sleep 0.2; done
cat $GOLAUNCH_NOTICE_FILE; while [ -e busy$1 -o $n -lt $2 ]; do sleep 0.05; done; trap 'echo rank $RANK ends after $n; exit 3' TERM; until touch $GOLAUNCH_NOTICE_FILE.ready; do :; done # Slurm warns it too
while :; do sleep 0.05; done`

// up waits until both ranks of a job run.
func (s slurm) up(name string) {
	s.t.Helper()
	s.run("sh", "-c", "while [ ! -e up"+name+"0 -o ! -e up"+name+"1 ]; do sleep 0.05; done").ends(0)
}

// script is keeper in the form for a batch script.
func script(name string) string {
	return "bash -c '" + strings.ReplaceAll(keeper, "'", `'"'"'`) + "' - " + name + " 1"
}

// TestSlurmWarns: golaunch learns of the time limit in each of these ways. The ranks then know
// their deadline, and ranks that are ready need not wait for it.
func TestSlurmWarns(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	want := []string{"rank 0 ends after 1", "rank 1 ends after 1", `{"deadline":"`, `,"why":"Slurm ends the job at `, "job preempted: Slurm ends the job at "}
	// Every 30 s, Slurm decides which jobs to warn within the next 30 s. It warns this job 20 s after
	// its start at the earliest, when its ranks run.
	p := s.run("srun", "--nodes=2", "--ntasks-per-node=1", "--time=1", "--signal=USR1@10", golaunch(t), "--", "bash", "-c", keeper, "-", "a", "1")
	p.ends(143, want...)
	id := s.batch(`$golaunch -- `+script("b")+`; echo ended with $?`, "--nodes=2", "--time=2")
	s.up("b")
	s.said("scancel", "--signal=USR1", id)
	s.output(id, append(want, "ended with 143")...)
	id = s.batch(`exec $golaunch -- `+script("c"), "--nodes=2", "--time=2")
	s.up("c")
	s.said("scancel", "--batch", "--signal=USR1", id)
	s.output(id, want...)
}

// TestSlurmWarnsAgents: Slurm warns the agents of a cluster on its nodes. Their ranks prepare, and
// the agents leave.
func TestSlurmWarnsAgents(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	id := s.batch("export "+secret+`
at=$SLURMD_NODENAME:29400
$golaunch coordinator --listen $at --state-dir $PWD/state &
srun --ntasks-per-node=1 $golaunch agent --coordinator $at; echo agents ended with $?; kill %1; wait`, "--nodes=2", "--time=2")
	s.run("sh", "-c", "while ! grep -q 'node n2 is here' "+id+".out; do sleep 0.05; done").ends(0)
	p := s.run("env", secret, golaunch(t), "--coordinator", "n1:29400", "--nodes", "2", "--procs-per-node", "1", "--", "bash", "-c", keeper, "-", "k", "1")
	s.up("k")
	s.said("scancel", "--signal=USR1", id)
	for rank := range 2 {
		p.line(fmt.Sprintf("rank %d ends after 1", rank))
	}
	p.kill() // before the coordinator ends, without which it would end too
	s.output(id, "got SIGUSR1, which goes to the ranks; Slurm ends the job in ", "is to leave within 1m", "agents ended with 143")
}

// TestSlurmAsksForACheckpoint: Slurm asks for a checkpoint long before the end of the job. This is
// no warning of the end.
func TestSlurmAsksForACheckpoint(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	p := s.run("srun", "--nodes=2", "--ntasks-per-node=1", "--time=30", golaunch(t), "--", "bash", "-c",
		`trap 'ls $GOLAUNCH_NOTICE_FILE; exit 5' TERM; trap 'asked=1' USR1; touch upd$RANK; while [ -z "$asked" -o ! -e end ]; do sleep 0.05; done; ls $GOLAUNCH_NOTICE_FILE; true`)
	s.up("d")
	s.said("scancel", "--signal=USR1", strings.TrimSpace(s.said("squeue", "--noheader", "--format=%A")))
	p.line("got SIGUSR1, which goes to the ranks; Slurm ends the job in (29m|30m0s)")
	if err := os.WriteFile(filepath.Join(s.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, text := p.wait()
	if strings.Contains(text, "get ready") || strings.Count(text, "No such file") != 2 {
		t.Error("the ranks have found a notice")
	}
}

// TestSlurmPreempts: Slurm preempts a job. The job's ranks have the time that Slurm gives them and
// --drain-time allows.
func TestSlurmPreempts(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2, Config: map[string]string{
		"PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL", "SlurmctldParameters": "preempt_send_user_signal",
	}})
	s.said("scontrol", "create", "PartitionName=urgent", "Nodes=ALL", "PriorityTier=9", "PreemptMode=OFF", "OverSubscribe=NO")
	s.said("scontrol", "update", "PartitionName=all", "GraceTime=60", "PreemptMode=CANCEL")
	busy := filepath.Join(s.dir, "busye")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := s.run("srun", "--exclusive", "--time=30", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--drain-time=50s", "--", "bash", "-c", keeper, "-", "e", "0")
	s.up("e")
	urgent := s.run("srun", "--partition=urgent", "--exclusive", "--nodes=2", "true")
	p.line("end of the job: got SIGTERM, Slurm ends the job at ")
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	p.ends(143, "rank 0 ends after 0", "rank 1 ends after 0", "job preempted: got SIGTERM, Slurm ends the job at ")
	urgent.ends(0)
	p = s.run("srun", "--exclusive", "--time=30", "--signal=USR1@9", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--", "bash", "-c", keeper, "-", "f", "1")
	s.up("f")
	urgent = s.run("srun", "--partition=urgent", "--exclusive", "--nodes=2", "true")
	p.ends(143, "rank 0 ends after 1", "rank 1 ends after 1", "job preempted: Slurm ends the job at ")
	urgent.ends(0)
}

// TestSlurmTimeLimit: at the time limit the ranks are stopped in order, although both srun and
// slurmstepd send SIGTERM.
func TestSlurmTimeLimit(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	p := s.run("srun", "--nodes=2", "--ntasks-per-node=1", "--time=30", golaunch(t), "--", "sh", "-c",
		`trap 'trap "" TERM; sleep 4; echo stopped $RANK; exit 0' TERM; touch upg$RANK; while :; do sleep 0.05; done`)
	s.up("g")
	s.said("scontrol", "update", "JobId="+strings.TrimSpace(s.said("squeue", "--noheader", "--format=%A")), "EndTime=now+3") // by the time that Slurm looks, now may be over
	p.ends(143, "stopped 0", "stopped 1", "job preempted: got SIGTERM, Slurm ends the job at ")
}

// TestSlurmStopsAllAgents: a signal that goes only to the steps of a job, ranks included, stops the
// job, wherever golaunch runs. The ranks get the signal once, except SIGTERM.
func TestSlurmStopsAllAgents(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	const rank = `n=0; trap 'n=$((n+1)); saved=1' INT TERM; touch up$1$RANK; while [ -z "$saved" ]; do sleep 0.05; done; sleep 2; echo saved $RANK after $n; exit 0`
	for i, c := range []struct {
		name, signal string
		code         int
	}{{"h", "INT", 130}, {"i", "TERM", 143}, {"j", "HUP", 129}} {
		quoted := "bash -c '" + strings.ReplaceAll(strings.ReplaceAll(rank, "INT", "INT HUP"), "'", `'"'"'`) + "' - " + c.name
		id := s.batch(`$golaunch -- `+quoted+`; echo ended with $?`, "--nodes=2")
		s.up(c.name)
		s.said("scancel", "--signal="+c.signal, id)
		after := " after 1"
		if c.signal == "TERM" {
			after = " after " // golaunch may repeat it
		}
		s.output(id, "saved 0"+after, "saved 1"+after, "job cancelled: got SIG"+c.signal, fmt.Sprintf("ended with %d", c.code))
		if i > 0 {
			continue
		}
		p := s.run("srun", "--nodes=2", "--ntasks-per-node=1", "--time=30", golaunch(t), "--", "bash", "-c", rank, "-", "k")
		s.up("k")
		s.said("scancel", "--signal="+c.signal, strings.TrimSpace(s.said("squeue", "--noheader", "--format=%A")))
		p.ends(c.code, "saved 0 after 1", "saved 1 after 1", "job cancelled: got SIG"+c.signal)
	}
}

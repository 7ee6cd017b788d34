package proc

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMembers(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		sc := newTestScope(t, newSupervisor(t, opts))
		out := newOutput(t)
		start(t, sc, shell("setsid sleep 1000 & true; exec sleep 1000", nil))
		p := start(t, sc, shell(`dd if=/dev/zero of=/dev/null bs=1M count=8 2>&-
n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done; sleep 1000 & echo ready; kill -STOP $$`, out.w))
		out.line()
		var info unix.Siginfo
		must(t, unix.Waitid(unix.P_PID, p.Pid(), &info, unix.WSTOPPED|unix.WNOWAIT, nil))
		members, err := sc.Members()
		must(t, err)
		var leader Member
		var children []Member
		for _, m := range members {
			switch {
			case m.PID == p.Pid():
				leader = m
			case m.Leader == p.Pid():
				children = append(children, m)
			}
		}
		if len(children) != 1 || leader.State != 'T' || leader.Name != "sh" || leader.Leader != leader.PID {
			t.Fatalf("members are %+v", members)
		}
		if leader.CPU < 10*time.Millisecond || leader.Faults == 0 || leader.IO == 0 {
			t.Errorf("%+v has neither computed nor read", leader)
		}
		must(t, sc.Kill())
		must(t, sc.Close())
		if members, err := sc.Members(); err != nil || len(members) > 0 {
			t.Errorf("after the end there are %+v, %v", members, err)
		}
	})
}
